"""A change of a launch → edits of the text it was written in. Plans, and changes nothing.

None where a part of the change has no exact place: a word that another variable made, a value in
another file, a variable of a config file that cannot hold one.
"""

import re
import shlex
from collections.abc import Iterator, Sequence

from inkling_cli.checks.finding import Change
from inkling_cli.checks.launch.fix.entry_edits import plan_entries
from inkling_cli.checks.launch.launch import Argument, Launch, OptionUse
from inkling_cli.checks.launch.options.table import Arity, OptionSpec, OptionTable, option_table
from inkling_cli.checks.launch.text.origins import NodeOrigin, WordOrigin, format_scalar
from inkling_cli.checks.launch.text.places import MappingEnd
from inkling_cli.checks.launch.text.source import Edit
from inkling_cli.checks.launch.text.yaml_edits import insert_items, remove_items

Edits = list[Edit] | None


def plan_edits(launch: Launch, change: Change, version: str) -> Edits:
    """Return the edits that make a change in the file of a launch; None if it has no place."""
    table = option_table(launch.engine, version)
    found = [_variable(launch, name, value) for name, value in change.variables.items()]
    if isinstance(launch.option_place, MappingEnd):
        found.append(plan_entries(launch.option_place, change, table))
    else:
        found += _iter_options(launch, change, table)
    return _all(found)


def _iter_options(launch: Launch, change: Change, table: OptionTable) -> Iterator[Edits]:
    for name, value in change.options.items():
        yield _set(launch, table.spec(name), value)
    for name in change.remove:
        yield _remove(launch, table, name)
    for name in change.once:
        yield _drop_all([use for use in _own_uses(launch) if use.name == name][:-1])
    for old, new in change.respell.items():
        yield _respell(launch, old, new)


def values_of(spec: OptionSpec, value: str) -> list[str]:
    """Return a change's value as the values that an option takes."""
    if spec.arity is Arity.NONE:
        return []
    return value.split() if spec.arity is Arity.MANY else [value]


def _set(launch: Launch, spec: OptionSpec, value: str) -> Edits:
    values = values_of(spec, value)
    use = next((use for use in reversed(_own_uses(launch)) if use.name == spec.name), None)
    if use is None:
        if launch.option_place is None or isinstance(launch.option_place, MappingEnd):
            return None
        return _only(launch.option_place.add(spec.name, values))
    option, *given = use.words
    if spec.arity is Arity.NONE:
        return [] if use.enabled else _replace(option, spec.name)
    if not given:
        is_single = "=" in option.text and len(values) == 1
        return _replace(option, f"{use.spelled}={values[0]}") if is_single else None
    if spec.arity is Arity.MANY:
        return _set_list(given, values)
    return _replace(given[0], values[0])


def _set_list(given: Sequence[Argument], values: Sequence[str]) -> Edits:
    """Replace, drop and add words so that a list holds the values, those that stay untouched."""
    texts = [word.text for word in given]
    missing = [value for value in values if value not in texts]
    surplus = [word for word in given if word.text not in values]
    found = [_replace(word, new) for word, new in zip(surplus, missing, strict=False)]
    found += [_drop([word]) for word in surplus[len(missing) :]]
    if rest := missing[len(surplus) :]:
        found.append(_add_behind(given[-1], rest))
    return _all(found)


def _add_behind(word: Argument, values: Sequence[str]) -> Edits:
    origin = word.origin
    if isinstance(origin, WordOrigin):
        text = "".join(f" {shlex.quote(value)}" for value in values)
        return _only(origin.embedded.edit(origin.end, origin.end, text))
    if isinstance(origin, NodeOrigin) and origin.parent is not None:
        style = origin.node.style if origin.node.style in ("'", '"') else None
        items = [format_scalar(value, style) for value in values]
        return _only(insert_items(origin.file, origin.parent, items, origin.node))
    return None


def _remove(launch: Launch, table: OptionTable, name: str) -> Edits:
    spec = table.match(name).spec
    if spec is None:
        return None
    return _drop_all([use for use in _own_uses(launch) if use.name == spec.name])


def _drop_all(uses: Sequence[OptionUse]) -> Edits:
    return _all([_drop(use.words) for use in uses]) if uses else None


def _all(parts: Sequence[Edits]) -> Edits:
    """Return the edits of all parts; None if one of them has no place."""
    edits: list[Edit] = []
    for part in parts:
        if part is None:
            return None
        edits += part
    return edits


def _respell(launch: Launch, old: str, new: str) -> Edits:
    words = [use.words[0] for use in _own_uses(launch)]
    words += [p.word for p in launch.problems if p.word is not None and p.word not in words]
    found = [
        _replace(word, new + word.text[len(old) :])
        for word in words
        if word.text == old or (word.text.startswith(f"{old}=") and "=" not in old)
    ]
    return _all(found) if found else None


def _variable(launch: Launch, name: str, value: str) -> Edits:
    variable = launch.variables.get(name)
    if variable and variable.origin and _is_own(launch, variable.origin):
        return _only(variable.origin.replace(value))
    unseen = launch.unseen.get(name)
    if variable is None and unseen and unseen.origin and isinstance(unseen.statement, WordOrigin):
        start = unseen.statement.start
        edits = [unseen.statement.embedded.edit(start, start, "export ")]
        if unseen.value != value:
            edits.append(unseen.origin.replace(value))
        return None if None in edits else [edit for edit in edits if edit]
    return None if launch.variable_place is None else _only(launch.variable_place.add(name, value))


def _own_uses(launch: Launch) -> list[OptionUse]:
    """Return the uses that stand in the launch's own file, not in that of its `--config`."""
    return [use for use in launch.uses if use.location.file == launch.location.file and use.words]


def _is_own(launch: Launch, origin: WordOrigin | NodeOrigin) -> bool:
    file = origin.embedded.file if isinstance(origin, WordOrigin) else origin.file
    return file.name == launch.location.file


def _replace(word: Argument, text: str) -> Edits:
    return None if word.origin is None else _only(word.origin.replace(text))


def _only(edit: Edit | None) -> Edits:
    return None if edit is None else [edit]


def _drop(words: Sequence[Argument]) -> Edits:
    """Return the edit that removes neighbouring words and the blanks that held them apart."""
    origins = [word.origin for word in words]
    first, last = origins[0], origins[-1]
    if isinstance(first, NodeOrigin) and isinstance(last, NodeOrigin):
        if first.parent is None or first.parent is not last.parent:
            return None
        index = first.parent.value.index(first.node)
        return _only(remove_items(first.file, first.parent, index, len(words)))
    if isinstance(first, WordOrigin) and isinstance(last, WordOrigin):
        return _drop_words(first, last)
    return None


def _drop_words(first: WordOrigin, last: WordOrigin) -> Edits:
    text = first.embedded.text
    if first.embedded is not last.embedded or first.start > last.start:
        return None
    ends_line = re.compile(r"[ \t]*(?:\\?\n|\)|$)").match(text, last.end)
    if ends_line:
        before = re.search(r"[ \t]*(?:\\?\n[ \t]*)?$", text[: first.start])
        start = before.start() if before else first.start
        return _only(first.embedded.edit(start, last.end, ""))
    blanks = re.compile(r"[ \t]*").match(text, last.end)
    end = blanks.end() if blanks else last.end
    return _only(first.embedded.edit(first.start, end, ""))
