"""`inkling convert-adapter`: an adapter in another dialect, its effect unchanged."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from inkling_cli.checks.launch.serving import serving_lines
from inkling_cli.checks.shell_word import shell_word
from inkling_cli.commands.convert_in_place import convert_in_place, undo_in_place
from inkling_cli.conversion_options import (
    CollapseOption,
    DropOption,
    DryRunOption,
    DtypeOption,
    ExpandOption,
    FoldOption,
    ForceOption,
    InPlaceOption,
    OnlyOption,
    OutOption,
    OverwriteOption,
    ShardSizeOption,
    UndoOption,
    build_options,
)
from inkling_cli.exit_codes import ExitCode
from inkling_cli.given_options import require_alone, require_apart
from inkling_cli.options import DialectOption, ModelOption, PlainFormatOption
from inkling_cli.output import Output, PlainFormat
from inkling_cli.render.conversion import conversion_object, render_plan, render_result
from inkling_cli.verification_options import VerifyOption, verification_of
from inkling_cli.writing import write_planned
from inkling_runtime.adapter.ambiguity import read_certain_adapter
from inkling_runtime.adapter.convert.options import Options
from inkling_runtime.adapter.convert.place import require_place
from inkling_runtime.adapter.convert.plan import Conversion, plan_conversion
from inkling_runtime.adapter.dialects import require_target
from inkling_runtime.adapter.dialects.dialect import Dialect
from inkling_runtime.adapter.model_spec import read_model_spec
from inkling_runtime.adapter.provenance.proven import Account, Action
from inkling_runtime.errors import InklingError

T = TypeVar("T")

_OF_A_NEW_FOLDER = ("-o", "--overwrite", "--shard-size", "--verify")
"""Options that say nothing of an adapter that is changed where it lies."""

EXAMPLES = (
    "inkling convert-adapter ADAPTER --to vllm -o OUT",
    "inkling convert-adapter ADAPTER --to peft --model MODEL/config.json -o OUT --verify",
    "inkling convert-adapter ADAPTER --to vllm --in-place",
)


def convert_adapter(
    context: typer.Context,
    adapter: Annotated[Path, typer.Argument(metavar="ADAPTER", help="The adapter's folder.")],
    to: Annotated[
        str | None, typer.Option("--to", metavar="DIALECT", help="tinker, vllm, sglang or peft.")
    ] = None,
    out: OutOption = None,
    dialect: DialectOption = None,
    model: ModelOption = None,
    dtype: DtypeOption = None,
    fold_scaling: FoldOption = False,
    expand: ExpandOption = False,
    collapse: CollapseOption = False,
    only: OnlyOption = None,
    drop: DropOption = None,
    shard_size: ShardSizeOption = None,
    in_place: InPlaceOption = False,
    undo: UndoOption = False,
    verify: VerifyOption = None,
    overwrite: OverwriteOption = False,
    force: ForceOption = False,
    dry_run: DryRunOption = False,
    output_format: PlainFormatOption = PlainFormat.FULL,
) -> int:
    """Rewrite an adapter for an engine, every delta unchanged.

    Names, layouts and adapter_config.json are changed as the target needs them. Where rank or
    size must change, or a scaling must be rounded into B, that is said before anything is written.
    OUT is written beside its place and renamed: it is absent or whole. What had to be computed is
    read back and proven first, and `inkling verify OUT` can do so again.
    """
    output = Output("convert-adapter", output_format)
    if undo:
        require_alone(context, "--undo", ["--output-format"], "`--undo` needs ADAPTER alone")
        return undo_in_place(adapter, output)
    options = build_options(
        force=force,
        dtype=dtype,
        fold_scaling=fold_scaling,
        expand=expand,
        collapse=collapse,
        only=only,
        drop=drop,
        shard_size=shard_size,
    )
    target = require_target(_given(to, "--to", "the dialect to write", adapter))
    wanted = _Wanted(adapter, target, dialect, model, options)
    if in_place:
        require_apart(context, "--in-place", _OF_A_NEW_FOLDER)
        return convert_in_place(adapter, wanted.plan, dry_run=dry_run, output=output)
    place = _given(out, "-o", "the folder to write, or `--in-place`", adapter)
    require_place([adapter], place, overwrite)
    conversion = wanted.plan()
    if dry_run:
        result = conversion_object(conversion, str(place), is_written=False)
        output.show(render_plan(conversion), result)
        return ExitCode.CLEAN
    proof = write_planned(
        conversion,
        place,
        account=Account(Action.CONVERT, (conversion.source,)),
        verification=verification_of(verify),
        overwrite=overwrite,
        model=model,
        output=output,
    )
    lines = serving_lines(conversion, str(place))
    output.show(
        render_result(conversion, str(place), lines, proof),
        conversion_object(conversion, str(place), is_written=True, proof=proof),
    )
    return ExitCode.CLEAN


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What is to be converted to what."""

    adapter: Path
    target: Dialect
    dialect: str | None
    model: Path | None
    options: Options

    def plan(self) -> Conversion:
        """Read the adapter and return the plan."""
        from inkling_runtime.adapter.arrays import CONTENTS

        spec = read_model_spec(self.model) if self.model is not None else None
        source = read_certain_adapter(self.adapter, self.dialect, spec)
        return plan_conversion(source, self.target, spec, CONTENTS, self.options)


def _given(value: T | None, option: str, expected: str, adapter: Path) -> T:
    if value is None:
        raise InklingError(
            f"`{option}` is not given, expected {expected}",
            f"`inkling convert-adapter {shell_word(adapter)} --to vllm -o OUT`",
        )
    return value
