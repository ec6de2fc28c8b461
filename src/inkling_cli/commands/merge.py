"""`inkling merge`: adapters into one adapter, or into a base checkpoint with `--into`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from inkling_cli.commands.merge_adapters import merge_adapters
from inkling_cli.commands.merge_base import merge_into_base
from inkling_cli.conversion_options import (
    DryRunOption,
    DtypeOption,
    ForceOption,
    OverwriteOption,
    RequiredOutOption,
    build_options,
)
from inkling_cli.given_options import require_apart
from inkling_cli.options import ModelOption, PlainFormatOption
from inkling_cli.output import Output, PlainFormat
from inkling_cli.rank_options import EnergyOption, ForOption, RankOption, build_target
from inkling_cli.verification_options import VerifyOption, verification_of
from inkling_runtime.adapter.dialects import DIALECTS
from inkling_runtime.errors import InklingError, format_count

EXAMPLES = (
    "inkling merge FIRST SECOND -o OUT",
    "inkling merge FIRST SECOND --weights 0.7,0.3 --energy 0.99 --to vllm -o OUT",
    "inkling merge ADAPTER --into MODEL -o OUT",
)

_OF_AN_ADAPTER = (
    *("--rank", "--energy", "--for", "--to", "--model"),
    *("--dtype", "--force", "--verify", "--no-verify"),
)
"""Options that say nothing of a base model that is written."""


def merge(
    context: typer.Context,
    adapters: Annotated[
        list[Path], typer.Argument(metavar="ADAPTER", help="The adapters' folders.")
    ],
    out: RequiredOutOption,
    into: Annotated[
        Path | None,
        typer.Option(
            "--into", metavar="MODEL", help="Add the deltas to the weights of this base model."
        ),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            "--weights", metavar="W,W…", help="What each delta is multiplied with; 1 by default."
        ),
    ] = None,
    rank: RankOption = None,
    energy: EnergyOption = None,
    limit: ForOption = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="DIALECT",
            help="tinker, vllm, sglang or peft; by default the first adapter's own.",
        ),
    ] = None,
    dialects: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="DIALECT",
            help="Read all adapters in this dialect; or given once for each, in order: one of "
            f"{', '.join(DIALECTS)}. By default their names tell.",
        ),
    ] = None,
    model: ModelOption = None,
    dtype: DtypeOption = None,
    overwrite: OverwriteOption = False,
    force: ForceOption = False,
    verify: VerifyOption = None,
    dry_run: DryRunOption = False,
    output_format: PlainFormatOption = PlainFormat.FULL,
) -> int:
    """Add adapters up, into one adapter or into the weights of a base model.

    One adapter: its delta is the weighted sum of all, exactly, with their ranks beside one
    another; `--rank` or `--energy` then reduce it. A base model (`--into MODEL`): a copy of the
    checkpoint with the deltas added to its weights.
    """
    output = Output("merge", output_format)
    factors = parse_weights(weights, len(adapters))
    named = one_for_each(dialects or (), len(adapters))
    if into is not None:
        hint = "`--into` writes a base model in its own form; the other one shapes a merged adapter"
        require_apart(context, "--into", _OF_AN_ADAPTER, hint)
        return merge_into_base(
            adapters,
            into,
            out,
            weights=factors,
            dialects=named,
            overwrite=overwrite,
            dry_run=dry_run,
            output=output,
        )
    is_resized = any(given is not None for given in (rank, energy, limit))
    return merge_adapters(
        adapters,
        out,
        weights=factors,
        target=build_target(rank, energy, limit) if is_resized else None,
        to=to,
        dialects=named,
        model=model,
        options=build_options(force=force, dtype=dtype),
        verification=verification_of(verify),
        overwrite=overwrite,
        dry_run=dry_run,
        output=output,
    )


def parse_weights(text: str | None, count: int) -> tuple[float, ...]:
    """Return the numbers of `--weights`; 1 for each of `count` adapters where there are none.

    Raises:
        InklingError: a part is no number.
    """
    if text is None:
        return (1.0,) * count
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise InklingError(
            f"`--weights` is `{text}`, expected numbers with commas between them",
            "`--weights 1.0,0.5` for two adapters",
        ) from error


def one_for_each(dialects: Sequence[str], count: int) -> tuple[str | None, ...]:
    """Return the dialect of each of `count` adapters, None where its names tell.

    Raises:
        InklingError: there are several, and not one for each.
    """
    if len(dialects) < 2:
        return (dialects[0] if dialects else None,) * count
    if len(dialects) != count:
        raise InklingError(
            f"`--from` is given {format_count(len(dialects), 'time')} for "
            f"{format_count(count, 'adapter')}, expected once for all or once for each, in order"
        )
    return tuple(dialects)
