"""`inkling merge` without `--into`: adapters added up into one adapter."""

from collections.abc import Sequence
from pathlib import Path

from inkling_cli.checks.launch.serving import serving_lines
from inkling_cli.exit_codes import ExitCode
from inkling_cli.one_thread import use_one_thread
from inkling_cli.output import Output
from inkling_cli.rank_options import target_wishes
from inkling_cli.render.merge import merged_object, render_merged, render_merged_plan
from inkling_cli.render.proof import proven
from inkling_cli.writing import write_planned
from inkling_runtime.adapter.ambiguity import read_certain_adapter
from inkling_runtime.adapter.convert.options import Options
from inkling_runtime.adapter.convert.place import require_place
from inkling_runtime.adapter.dialects import require_target
from inkling_runtime.adapter.model_spec import read_model_spec
from inkling_runtime.adapter.provenance.proven import Account, Action, Verification
from inkling_runtime.adapter.resize.target_rank import TargetRank


def merge_adapters(
    adapters: Sequence[Path],
    out: Path,
    *,
    weights: Sequence[float],
    target: TargetRank | None,
    to: str | None,
    dialects: Sequence[str | None],
    model: Path | None,
    options: Options,
    verification: Verification,
    overwrite: bool,
    dry_run: bool,
    output: Output,
) -> int:
    """Write one adapter whose delta is the weighted sum of all; return the exit code.

    Args:
        adapters: their folders.
        out: the folder to write.
        weights: a factor for each adapter.
        target: the rank to bring the sum to; None: the sum of all ranks.
        to: the dialect to write; None: the first adapter's own.
        dialects: the one that each adapter is read in; None: its names tell.
        model: the base model's folder or config.
        options: further wishes.
        verification: what of the result to prove.
        overwrite: whether `out` may be replaced.
        dry_run: whether only the plan is shown.
        output: where the answer goes.
    """
    use_one_thread()
    from inkling_runtime.adapter.arrays import CONTENTS
    from inkling_runtime.adapter.combine.plan import gather_parts, plan_sum
    from inkling_runtime.adapter.resize.coefficient_store import CoefficientStore
    from inkling_runtime.adapter.resize.plan import Destination

    written = require_target(to) if to is not None else None
    spec = read_model_spec(model) if model is not None else None
    require_place(adapters, out, overwrite)
    sources = tuple(
        read_certain_adapter(adapter, dialect, spec)
        for adapter, dialect in zip(adapters, dialects, strict=True)
    )
    written = written or require_target(sources[0].dialect.written_as)
    destination = Destination(written, spec, options)
    parts = gather_parts(sources, weights, spec, CONTENTS)
    with CoefficientStore() as store:
        conversion, resize = plan_sum(parts, target, destination, CONTENTS, store, output.progress)
        inputs = tuple(zip(sources, weights, strict=True))
        result = merged_object(conversion, inputs, resize, str(out), not dry_run)
        if dry_run:
            output.show(render_merged_plan(conversion, resize), result)
            return ExitCode.CLEAN
        wishes = {"weights": list(weights)} | target_wishes(target or TargetRank(), options)
        proof = write_planned(
            conversion,
            out,
            account=Account(Action.MERGE, sources, wishes),
            verification=verification,
            overwrite=overwrite,
            model=model,
            output=output,
        )
    lines = serving_lines(conversion, str(out))
    output.show(render_merged(conversion, resize, str(out), lines, proof), result | proven(proof))
    return ExitCode.CLEAN
