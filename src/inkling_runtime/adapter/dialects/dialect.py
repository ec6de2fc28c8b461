"""A dialect: one table between on-disk module names and sites with their layout.

Not the engines' acceptance logic (which names an engine tolerates, drops or refuses is judged by
checks): only what a producer writes and what each name of its convention means.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from inkling_runtime.adapter.layouts import Layout
from inkling_runtime.adapter.lora_config import LoraConfig
from inkling_runtime.adapter.sites import SiteKind

Names = Mapping[str, str]
"""On-disk module name → the name to look up in the table, or back."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table: a module name, how it is laid out and which sites it holds.

    `{layer}` and `{expert}` stand for numbers. A row that is only read is not written.
    """

    template: str
    layout: Layout
    kinds: tuple[SiteKind, ...]
    is_written: bool = True


def _same_names(modules: Iterable[str], config: LoraConfig) -> Names:
    return {module: module for module in modules}


def _written_names(modules: Iterable[str]) -> Names:
    return {module: module for module in modules}


@dataclass(frozen=True)
class Dialect:
    """A naming and layout convention.

    Attributes:
        name: as on the command line.
        title: whose convention it is, for people.
        wrappers: prefixes that a producer may add; the first is written.
        roots: prefixes in front of `layers.`; the first is written.
        text_root: what is written for the text model alone, where that differs.
        rows: the table.
        honours_patterns: whether its consumer applies rsLoRA, rank_pattern and alpha_pattern;
            where it does not, rank and scaling must be the same for all modules.
        reads_shards: whether its consumer reads an adapter in several files.
        resolve: turns on-disk names into table names where a name alone is ambiguous.
        spell: the way back, for writing.
        instead: the dialect to write adapters in that this one only reads.
    """

    name: str
    title: str
    wrappers: tuple[str, ...]
    roots: tuple[str, ...]
    rows: tuple[Row, ...]
    text_root: str | None = None
    honours_patterns: bool = True
    reads_shards: bool = True
    resolve: Callable[[Iterable[str], LoraConfig], Names] = field(default=_same_names)
    spell: Callable[[Iterable[str]], Names] = field(default=_written_names)
    instead: str | None = None

    @cached_property
    def _by_template(self) -> dict[str, list[Row]]:
        table: dict[str, list[Row]] = {}
        for row in self.rows:
            table.setdefault(row.template, []).append(row)
        return table

    def parse(self, name: str, ndim: int) -> "ParsedName | None":
        """Return what a table name means, or None if the table does not have it.

        The number of dimensions tells rows of one name apart (flat 2-D, stacked 3-D).
        """
        for wrapper in self.wrappers:
            if wrapper and name.startswith(wrapper):
                name = name[len(wrapper) :]
                break
        for root in self.roots:
            if name.startswith(root + "layers."):
                name = name[len(root) :]
                break
        template, layer, expert = _generalise(name)
        rows = self._by_template.get(template)
        if rows is None or "{" in name:
            return None
        row = next((row for row in rows if row.layout.ndim == ndim), rows[0])
        return ParsedName(row, layer, expert)

    @property
    def written_as(self) -> str:
        """The dialect that a conversion writes for the same consumer: itself, if it can."""
        return self.instead or self.name

    def written_rows(self) -> list[Row]:
        """Return the rows that a conversion to this dialect may write; none if it is only read."""
        return [] if self.instead else [row for row in self.rows if row.is_written]

    def written_root(self, is_text_model: bool) -> str:
        """Return the prefix to write in front of `layers.`."""
        return self.text_root if is_text_model and self.text_root else self.roots[0]

    def format(self, row: Row, layer: int, expert: int, root: str) -> str:
        """Return the table name of a row in a layer, with the written wrapper and a root."""
        name = row.template.format(layer=layer, expert=expert)
        if name.startswith("layers."):
            name = root + name
        return self.wrappers[0] + name


@dataclass(frozen=True, slots=True)
class ParsedName:
    """The meaning of a module name: its row, layer (-1: none) and expert (-1: none)."""

    row: Row
    layer: int
    expert: int


_LAYER = re.compile(r"layers\.(0|[1-9][0-9]{0,8})\.")
_EXPERT = re.compile(r"\.(experts|shared_experts)\.(0|[1-9][0-9]{0,8})\.")


def _generalise(name: str) -> tuple[str, int, int]:
    """Return the name with its numbers replaced by the placeholders of templates."""
    layer = expert = -1
    if match := _LAYER.match(name):
        layer = int(match[1])
        name = "layers.{layer}." + name[match.end() :]
    if match := _EXPERT.search(name):
        expert = int(match[2])
        name = f"{name[: match.start()]}.{match[1]}.{{expert}}.{name[match.end() :]}"
    return name, layer, expert
