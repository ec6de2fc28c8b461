"""`--verify` and `--no-verify`, and what they mean for a conversion that is about to be written."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from inkling_cli.output import Output
from inkling_runtime.adapter.convert.plan import Conversion
from inkling_runtime.adapter.provenance.proven import Verification
from inkling_runtime.errors import InklingError, format_count

VerifyOption = Annotated[
    bool | None,
    typer.Option(
        "--verify/--no-verify",
        help="Read every module back and prove its delta, or none. By default those are proven "
        "whose numbers are moved or computed, not copied. With `--to peft` and `--model`, "
        "`--verify` also loads the result through PEFT.",
    ),
]


def verification_of(is_wanted: bool | None) -> Verification:
    """Return what is to be proven."""
    if is_wanted is None:
        return Verification.COMPUTED
    return Verification.ALL if is_wanted else Verification.NONE


def peft_check(
    conversion: Conversion, model: Path | None, verification: Verification, output: Output
) -> Callable[[Path], None]:
    """Return what loads a written folder through PEFT, or nothing where that is not wanted.

    Where the result does not fit into memory, that is said and it is not loaded.

    Raises:
        InklingError: PEFT is not installed.
    """
    if conversion.dialect.name != "peft" or verification is not Verification.ALL:
        return lambda folder: None
    if model is None:
        output.note("not loaded through PEFT: `--model` is not given, PEFT needs the base model")
        return lambda folder: None
    available = _available_memory()
    if available is not None and conversion.nbytes > available:
        output.note(
            f"not loaded through PEFT: the result has {conversion.nbytes:,} bytes, "
            f"{available:,} bytes of memory are free"
        )
        return lambda folder: None
    try:
        from inkling_runtime.peft_proof import prove_in_peft
    except ModuleNotFoundError as error:
        raise InklingError(
            f"`--verify` with `--to peft` needs `{error.name}`, which is not installed",
            "pip install 'inkling-cli[runtime,peft]', or leave `--verify` out",
        ) from error

    def check(folder: Path) -> None:
        count = prove_in_peft(folder, model)
        output.note(f"loaded through PEFT: {format_count(count, 'tensor')}, each in its place")

    return check


def _available_memory() -> int | None:
    """Return the bytes of memory that are free, None where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        (line,) = [line for line in lines if line.startswith("MemAvailable:")]
        return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None
