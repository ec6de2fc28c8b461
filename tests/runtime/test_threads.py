import subprocess
import sys

from inkling_runtime.threads import settle_threads


def test_what_the_user_has_set_stays() -> None:
    environment = {"OMP_WAIT_POLICY": "ACTIVE", "OMP_NUM_THREADS": "7"}
    settle_threads(environment=environment)
    assert environment == {
        "OMP_WAIT_POLICY": "ACTIVE",
        "GOMP_SPINCOUNT": "20000",
        "OMP_NUM_THREADS": "7",
    }


def test_a_number_of_threads_that_is_given_holds() -> None:
    environment = {"OMP_NUM_THREADS": "7"}
    settle_threads(3, environment)
    assert environment["OMP_NUM_THREADS"] == "3"
    assert environment["OMP_WAIT_POLICY"] == "PASSIVE"


def test_torch_is_not_imported_and_then_has_so_many_threads() -> None:
    program = (
        "import sys; from inkling_runtime.threads import settle_threads; settle_threads(1);"
        "assert 'torch' not in sys.modules; import torch; print(torch.get_num_threads())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "1\n"
