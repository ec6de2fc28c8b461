"""What `--verify` means, and when the result is also loaded through PEFT."""

from dataclasses import replace

import pytest

from checks.adapter_cases import SPEC
from factories import TINY, raw_config, write_model, write_released_adapter
from inkling_cli import verification_options
from inkling_cli.output import Output
from inkling_cli.render.proof import proof_line, proven
from inkling_cli.verification_options import peft_check, verification_of
from inkling_runtime.adapter.adapter import read_adapter
from inkling_runtime.adapter.arrays import CONTENTS
from inkling_runtime.adapter.convert.plan import plan_conversion
from inkling_runtime.adapter.convert.write import write_conversion
from inkling_runtime.adapter.dialects import require_target
from inkling_runtime.adapter.provenance.proven import Proof, Proven, Verification
from inkling_runtime.errors import InklingError


@pytest.fixture
def model(tmp_path):
    return write_model(tmp_path / "model", raw_config(TINY))


def plan(folder, target):
    source = read_adapter(write_released_adapter(folder / "source"))
    return plan_conversion(source, require_target(target), SPEC, CONTENTS)


def test_each_way_to_ask():
    asked = {None: Verification.COMPUTED, True: Verification.ALL, False: Verification.NONE}
    assert {is_wanted: verification_of(is_wanted) for is_wanted in asked} == asked


def test_a_result_is_loaded_through_peft_and_refused_if_that_fails(tmp_path, model, capsys):
    conversion = plan(tmp_path, "peft")
    check = peft_check(conversion, model, Verification.ALL, Output("convert-adapter"))
    write_conversion(conversion, tmp_path / "out", last_check=check)
    err = capsys.readouterr().err
    assert (
        err == f"note: loaded through PEFT: {len(conversion.outputs)} tensors, each in its place\n"
    )
    wrong = replace(conversion, config=conversion.config | {"target_parameters": None})
    with pytest.raises(InklingError):
        write_conversion(wrong, tmp_path / "wrong", last_check=check)
    assert not (tmp_path / "wrong").exists()


@pytest.mark.parametrize(
    ("target", "verification"), [("vllm", Verification.ALL), ("peft", Verification.COMPUTED)]
)
def test_it_is_not_where_that_is_not_asked_for(tmp_path, model, capsys, target, verification):
    check = peft_check(plan(tmp_path, target), model, verification, Output("convert-adapter"))
    check(tmp_path / "nowhere")
    assert capsys.readouterr().err == ""


def test_why_it_is_not_is_said(tmp_path, model, capsys, monkeypatch):
    conversion = plan(tmp_path, "peft")
    output = Output("convert-adapter")
    peft_check(conversion, None, Verification.ALL, output)(tmp_path / "nowhere")
    assert "not loaded through PEFT: `--model` is not given" in capsys.readouterr().err
    monkeypatch.setattr(verification_options, "_available_memory", lambda: 5)
    peft_check(conversion, model, Verification.ALL, output)(tmp_path / "nowhere")
    assert capsys.readouterr().err == (
        f"note: not loaded through PEFT: the result has {conversion.nbytes:,} bytes, "
        "5 bytes of memory are free\n"
    )


def test_a_proof_in_a_line_and_as_an_object():
    proof = Proof({"a": Proven.BYTES, "b": Proven.BYTES, "c": Proven.NOTHING})
    assert proof_line(proof) == "2 modules by the source's bytes; 1 copied and not read back"
    assert proof_line(Proof({"a": Proven.NOTHING})) == ""
    assert proven(proof)["proven"] == {
        "nothing": 1,
        "re-evaluated": 0,
        "rounded": 0,
        "equal": 0,
        "bytes": 2,
    }
