"""Writing a planned adapter as commands do it: what changes is said first, then it is shown."""

from pathlib import Path

from inkling_cli.output import Output
from inkling_cli.verification_options import peft_check
from inkling_runtime.adapter.convert.options import is_loss
from inkling_runtime.adapter.convert.plan import Conversion
from inkling_runtime.adapter.provenance.proven import Account, Proof, Verification


def write_planned(
    conversion: Conversion,
    out: Path,
    *,
    account: Account,
    verification: Verification,
    overwrite: bool,
    model: Path | None,
    output: Output,
) -> Proof:
    """Write an adapter folder, with notes and progress, and return what was proven of it.

    `model` is the base model's folder or config, with which PEFT proves what is written for it.

    Raises:
        InklingError: as `write_conversion`.
    """
    from inkling_runtime.adapter.convert.write import work_of, write_conversion

    for change in conversion.changes:
        (output.warn if is_loss(change) else output.note)(change)
    last_check = peft_check(conversion, model, verification, output)
    with output.progress(work_of(conversion, verification)) as advance:
        return write_conversion(
            conversion,
            out,
            overwrite=overwrite,
            progress=advance,
            account=account,
            verification=verification,
            proof_progress=advance,
            last_check=last_check,
        )
