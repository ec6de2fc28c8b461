"""Options of the commands that write an adapter, and how they become the library's `Options`."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from inkling_cli.byte_size import parse_size
from inkling_runtime.adapter.convert.options import Options, Outer
from inkling_runtime.adapter.sites import Group
from inkling_runtime.errors import InklingError


class WrittenDtype(StrEnum):
    """Dtypes that all factors can be written in, under the names that people use."""

    BF16 = "bf16"
    FP16 = "fp16"
    FP32 = "fp32"


_STORED = {WrittenDtype.BF16: "BF16", WrittenDtype.FP16: "F16", WrittenDtype.FP32: "F32"}

OutOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="OUT", help="The folder to write.")
]
RequiredOutOption = Annotated[
    Path, typer.Option("--output", "-o", metavar="OUT", help="The folder to write.")
]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace OUT if it exists.")]
DryRunOption = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Show the plan and write nothing. As JSON, each tensor has its own entry.",
    ),
]
DtypeOption = Annotated[
    WrittenDtype | None,
    typer.Option("--dtype", help="The dtype of all factors, rounded to nearest even."),
]
FoldOption = Annotated[
    bool,
    typer.Option(
        "--fold-scaling",
        help="Multiply each scaling into B, so that alpha / r is 1 everywhere, without rsLoRA.",
    ),
]
ExpandOption = Annotated[
    bool,
    typer.Option("--expand", help="Store the hidden-side factor of experts once per expert."),
]
CollapseOption = Annotated[
    bool,
    typer.Option("--collapse", help="Insist that it is stored once: refuse if copies differ."),
]
_GROUPS = ", ".join(Group)
OnlyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--only",
        metavar="GROUP,GROUP…",
        help=f"Keep these groups of modules and drop all others: {_GROUPS}. Repeatable.",
    ),
]
DropOption = Annotated[
    list[str] | None,
    typer.Option(
        "--drop", metavar="GROUP,GROUP…", help="Leave out these groups of modules. Repeatable."
    ),
]
ForceOption = Annotated[
    bool,
    typer.Option("--force", help="Cut rows of the padded vocabulary of lm_head even if not zero."),
]
ShardSizeOption = Annotated[
    str | None,
    typer.Option(
        "--shard-size", metavar="SIZE", help="Write several files of at most this size, as `2GB`."
    ),
]
InPlaceOption = Annotated[
    bool,
    typer.Option(
        "--in-place",
        help="Change ADAPTER itself, where no tensor has to move. Nobody may have its weights "
        "open meanwhile. `--undo` takes it back.",
    ),
]
UndoOption = Annotated[
    bool,
    typer.Option("--undo", help="Take back what `--in-place` did to ADAPTER, to the last byte."),
]


def build_options(
    *,
    force: bool = False,
    dtype: WrittenDtype | None = None,
    fold_scaling: bool = False,
    expand: bool = False,
    collapse: bool = False,
    only: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    shard_size: str | None = None,
) -> Options:
    """Return what is asked for.

    Raises:
        InklingError: two options contradict each other, a group or a size is none.
    """
    if expand and collapse:
        raise InklingError("`--expand` and `--collapse` are both given, expected one of them")
    if only and drop:
        raise InklingError("`--only` and `--drop` are both given, expected one of them")
    dropped = _groups(drop, "--drop") if not only else frozenset(Group) - _groups(only, "--only")
    outer = Outer.EXPAND if expand else Outer.COLLAPSE if collapse else None
    return Options(
        force=force,
        dtype=_STORED[dtype] if dtype else None,
        fold_scaling=fold_scaling,
        outer=outer,
        dropped=dropped,
        shard_size=parse_size(shard_size, "--shard-size", "2GB", "500MB") if shard_size else None,
    )


def _groups(values: Sequence[str] | None, option: str) -> frozenset[Group]:
    """Return the groups that an option names, once or several times, with commas between them."""
    names = [name.strip() for value in values or () for name in value.split(",")]
    for name in names:
        if name not in tuple(Group):
            raise InklingError(
                f"`{option}` has `{name}`, expected groups of modules with commas between them",
                f"the groups are {', '.join(f'`{group}`' for group in Group)}",
            )
    return frozenset(map(Group, names))
