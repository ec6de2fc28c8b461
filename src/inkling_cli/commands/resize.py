"""`inkling resize`: an adapter at another rank, as near to its deltas as that rank allows."""

from pathlib import Path
from typing import Annotated

import typer

from inkling_cli.checks.launch.serving import serving_lines
from inkling_cli.conversion_options import (
    DryRunOption,
    DtypeOption,
    ForceOption,
    OverwriteOption,
    RequiredOutOption,
    build_options,
)
from inkling_cli.exit_codes import ExitCode
from inkling_cli.one_thread import use_one_thread
from inkling_cli.options import DialectOption, ModelOption, PlainFormatOption
from inkling_cli.output import Output, PlainFormat
from inkling_cli.rank_options import (
    EnergyOption,
    ForOption,
    RankOption,
    build_target,
    target_wishes,
)
from inkling_cli.render.conversion import render_plan, render_result
from inkling_cli.render.proof import proven
from inkling_cli.render.resize import render_kept, resize_object
from inkling_cli.verification_options import VerifyOption, verification_of
from inkling_cli.writing import write_planned
from inkling_runtime.adapter.ambiguity import read_certain_adapter
from inkling_runtime.adapter.convert.place import require_place
from inkling_runtime.adapter.dialects import require_target
from inkling_runtime.adapter.model_spec import read_model_spec
from inkling_runtime.adapter.provenance.proven import Account, Action

EXAMPLES = (
    "inkling resize ADAPTER --rank 16 -o OUT",
    "inkling resize ADAPTER --energy 0.99 --for vllm --to vllm -o OUT",
    "inkling resize ADAPTER --energy 0.95 -o OUT --dry-run --output-format json",
)


def resize(
    adapter: Annotated[Path, typer.Argument(metavar="ADAPTER", help="The adapter's folder.")],
    out: RequiredOutOption,
    rank: RankOption = None,
    energy: EnergyOption = None,
    limit: ForOption = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="DIALECT",
            help="tinker, vllm, sglang or peft; by default the adapter's own.",
        ),
    ] = None,
    dialect: DialectOption = None,
    model: ModelOption = None,
    dtype: DtypeOption = None,
    overwrite: OverwriteOption = False,
    force: ForceOption = False,
    verify: VerifyOption = None,
    dry_run: DryRunOption = False,
    output_format: PlainFormatOption = PlainFormat.FULL,
) -> int:
    """Give an adapter another rank.

    Each module's delta becomes the best approximation of the rank: its singular value
    decomposition is computed from the factors, and the delta is never formed. What all experts
    share stays shared. alpha follows the rank, so that every scaling stays what it is. A larger
    rank is padded with zeros, exactly.
    """
    use_one_thread()
    from inkling_runtime.adapter.arrays import CONTENTS
    from inkling_runtime.adapter.resize.coefficient_store import CoefficientStore
    from inkling_runtime.adapter.resize.plan import Destination, plan_adapter_resize

    output = Output("resize", output_format)
    target = build_target(rank, energy, limit)
    options = build_options(force=force, dtype=dtype)
    written = require_target(to) if to is not None else None
    spec = read_model_spec(model) if model is not None else None
    require_place([adapter], out, overwrite)
    source = read_certain_adapter(adapter, dialect, spec)
    written = written or require_target(source.dialect.written_as)
    destination = Destination(written, spec, options)
    with CoefficientStore() as store:
        plan = plan_adapter_resize(source, target, destination, CONTENTS, store, output.progress)
        conversion, kept = plan.conversion, render_kept(plan)
        result = resize_object(plan, str(out), not dry_run)
        if dry_run:
            output.show(render_plan(conversion).append("\n\n").append_text(kept), result)
            return ExitCode.CLEAN
        proof = write_planned(
            conversion,
            out,
            account=Account(Action.RESIZE, (source,), target_wishes(target, options)),
            verification=verification_of(verify),
            overwrite=overwrite,
            model=model,
            output=output,
        )
    lines = serving_lines(conversion, str(out))
    text = render_result(conversion, str(out), lines, proof)
    output.show(kept.append("\n\n").append_text(text), result | proven(proof))
    return ExitCode.CLEAN
