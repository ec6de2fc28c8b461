"""The variables of a shell while a script is followed: what they hold and what is exported.

Assignments, `export`, `unset`, `set -a`, `local` and subshells are followed; no command is run. A
variable that a command fills (`read`, `for`) holds what is not known.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from inkling_cli.checks.finding import Location
from inkling_cli.checks.launch.launch import Argument, Variable
from inkling_cli.checks.launch.parse.shell_expand import Expander, Value
from inkling_cli.checks.launch.parse.shell_words import Word
from inkling_cli.checks.launch.parse.traced import Traced, join, unknown_text, untraced
from inkling_cli.checks.launch.text.origins import WordOrigin
from inkling_cli.checks.launch.text.source import Embedded
from inkling_runtime.errors import InklingError

DECLARATIONS = frozenset(("export", "declare", "typeset", "local", "readonly"))
_LOCAL = frozenset(("declare", "typeset", "local"))
_MAX_VALUE = 1_000_000
_PAIR = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*")
_CALCULATED = re.compile(r"(?:\+\+|--)\s*(\w+)|(\w+)\s*(?:\+\+|--|(?:[-+*/%&|^]|<<|>>)?=(?!=))")
_T = TypeVar("_T")


@dataclass
class ShellState:
    """Variables at one point of a script.

    Attributes:
        variables: what each holds.
        exported: those that commands see.
        unseen: those that were assigned and not exported.
        used: names that were expanded so far.
    """

    variables: dict[str, Value]
    exported: dict[str, Variable]
    unseen: dict[str, Variable] = field(default_factory=dict)
    marked: set[str] = field(default_factory=set)
    """Names that are exported as soon as they have a value."""
    used: set[str] = field(default_factory=set)
    exports_all: bool = False

    @classmethod
    def inherited(cls, environment: Mapping[str, Variable]) -> "ShellState":
        """Return the state in which a script begins."""
        held: dict[str, Value] = {v.name: _inherited(v) for v in environment.values()}
        return cls(held, dict(environment), marked=set(environment))

    def copy(self) -> "ShellState":
        """Return the state of a subshell."""
        return replace(
            self,
            variables=dict(self.variables),
            exported=dict(self.exported),
            unseen=dict(self.unseen),
            marked=set(self.marked),
        )

    def store(self, variable: Variable, value: Value, *, exported: bool) -> None:
        """Give a variable its value; it is exported if it was, or if `exported` says so."""
        name = variable.name
        self.variables[name] = value
        self.exported.pop(name, None)
        self.unseen.pop(name, None)
        if exported or self.exports_all:
            self.marked.add(name)
        if not isinstance(value, Traced):
            return
        if name in self.marked:
            self.exported[name] = replace(variable, exported=True)
        else:
            self.unseen[name] = variable

    def export(self, name: str) -> None:
        """Let commands see a variable, now or once it has a value."""
        self.marked.add(name)
        if variable := self.unseen.pop(name, None):
            self.exported[name] = replace(variable, exported=True)

    def hide(self, name: str) -> None:
        """Take a variable out of the environment, as `export -n` does."""
        self.marked.discard(name)
        if variable := self.exported.pop(name, None):
            self.unseen[name] = replace(variable, exported=False)

    def unset(self, name: str) -> None:
        """Forget a variable."""
        self.marked.discard(name)
        for variables in (self.variables, self.exported, self.unseen):
            variables.pop(name, None)

    def lose(self, name: str, place: Location) -> None:
        """Say that a variable holds what is not known."""
        value = unknown_text(name)
        variable = Variable(name, value.text, place, exported=False, unknown=value.unknown)
        self.store(variable, value, exported=False)

    def restore(self, name: str, before: "ShellState") -> None:
        """Give a variable back what it held before."""
        self.unset(name)
        _copy_entry(name, before.variables, self.variables)
        _copy_entry(name, before.exported, self.exported)
        _copy_entry(name, before.unseen, self.unseen)
        if name in before.marked:
            self.marked.add(name)

    def set_flags(self, words: Sequence[str]) -> None:
        """Follow `set -a` and `set +a`."""
        for i, word in enumerate(words):
            is_long = word in ("-o", "+o") and words[i + 1 : i + 2] == ["allexport"]
            if is_long or re.fullmatch(r"[-+][A-Za-z]*a[A-Za-z]*", word):
                self.exports_all = word[0] == "-"
            elif word == "--":
                return


def _inherited(variable: Variable) -> Traced:
    """Return a variable's value; one that was unknown where it was exported still is."""
    return replace(untraced(variable.value), unknown=variable.unknown)


def _copy_entry(name: str, source: dict[str, _T], target: dict[str, _T]) -> None:
    if name in source:
        target[name] = source[name]


@dataclass
class Assigner:
    """Follows the assignments of a shell text."""

    embedded: Embedded
    state: ShellState

    @property
    def file(self) -> str:
        """The file's name."""
        return self.embedded.file.name

    def place(self, word: Word, name: str) -> Location:
        """Return where a word assigns a variable."""
        return Location(self.file, self.embedded.line(word.start), name)

    def expander(self) -> Expander:
        """Return what makes expansions against the variables as they are now."""
        return Expander(self.embedded, self.state.variables, self.state.used)

    def assign(self, word: Word, statement: Word, *, exported: bool = False) -> None:
        """Follow `NAME=value`; `statement` is the first word of the command that holds it."""
        name = word.assigned_name or ""
        value = self._value(name, word)
        written = word.parts[0].text.partition("=")[0] + "="
        is_whole = not written.endswith("+=")
        origin = WordOrigin(self.embedded, word.start + len(written), word.end)
        self._store(name, value, word, origin if is_whole else None, statement, exported)

    def declare(self, name: str, command: list[Word]) -> list[str]:
        """Follow `export` and its like; return the names that are local to a function."""
        flags, words = self._flags(command[1:])
        exported = (name == "export" and "n" not in flags) or "x" in flags
        names = []
        for word in words:
            if word.assigned_name:
                names.append(word.assigned_name)
                self.assign(word, command[0], exported=exported)
                continue
            for argument in self._split(word):
                names.append(argument.text.partition("=")[0])
                self._declared(argument, word, command[0], exported)
        if name == "export" and "n" in flags:
            for hidden in names:
                self.state.hide(hidden)
        return names if name in _LOCAL else []

    def _declared(self, argument: Argument, word: Word, first: Word, exported: bool) -> None:
        """Follow a quoted `"NAME=value"` or a bare name."""
        if pair := _PAIR.fullmatch(argument.text):
            name, text = pair.groups()
            value = replace(untraced(text), unknown=argument.unknown)
            origin = argument.origin
            if isinstance(origin, WordOrigin):
                origin = replace(origin, prefix=f"{name}=")
            kept = origin if isinstance(origin, WordOrigin) else None
            self._store(name, value, word, kept, first, exported)
        elif exported:
            self.state.export(argument.text)

    def _flags(self, words: list[Word]) -> tuple[str, list[Word]]:
        flags = ""
        for i, word in enumerate(words):
            text = plain_text(word)
            if text == "--":
                return flags, words[i + 1 :]
            if not re.fullmatch(r"[-+][A-Za-z]+", text):
                return flags, words[i:]
            flags += text[1:] if text[0] == "-" else ""
        return flags, []

    def _split(self, word: Word) -> list[Argument]:
        expander = self.expander()
        arguments = expander.split(word)
        self.keep_defaults(expander, word)
        return arguments

    def _store(
        self,
        name: str,
        value: Value,
        word: Word,
        origin: WordOrigin | None,
        statement: Word,
        exported: bool,
    ) -> None:
        size = len(value.text) if isinstance(value, Traced) else sum(len(v.text) for v in value)
        place = self.place(word, name)
        if size > _MAX_VALUE:
            raise InklingError(f"`{self.file}:{place.line}` makes `{name}` larger than 1 MB")
        text = value.text if isinstance(value, Traced) else ""
        start = WordOrigin(self.embedded, statement.start, statement.start)
        unknown = value.unknown if isinstance(value, Traced) else ()
        variable = Variable(name, text, place, False, origin, start, unknown)
        self.state.store(variable, value, exported=exported)

    def keep_defaults(self, expander: Expander, word: Word) -> None:
        """Store what `${NAME:=value}` assigned."""
        for name, value in expander.assigned.items():
            self._store(name, value, word, None, word, exported=False)

    def _value(self, name: str, word: Word) -> Value:
        expander = self.expander()
        old = self.state.variables.get(name, untraced(""))
        is_appended = word.parts[0].text.partition("=")[0].endswith("+")
        if word.items is not None:
            items = tuple(text for item in word.items for text in expander.split(item))
            self.keep_defaults(expander, word)
            if not is_appended:
                return items
            if isinstance(old, Traced):
                old = (Argument(old.text, unknown=old.unknown),) if old.text else ()
            return (*old, *items)
        whole = expander.join(word)
        self.keep_defaults(expander, word)
        value = whole.after(whole.text.index("=") + 1)
        if not is_appended:
            return value
        if isinstance(old, Traced):
            return join([old, value])
        first = Argument((old[0].text if old else "") + value.text, unknown=value.unknown)
        return (first, *old[1:])


def names_filled(words: Sequence[str]) -> list[str]:
    """Return the variables that a command fills with what is not known."""
    name, *rest = words or [""]
    if name.startswith("(("):
        return [before or after for before, after in _CALCULATED.findall(name)]
    options = [word for word in rest if not word.startswith("-")]
    if name in ("for", "select"):
        found = rest[:1]
    elif name in ("read", "mapfile", "readarray", "getopts", "let"):
        found = options
    elif name == "printf" and rest[:1] == ["-v"]:
        found = rest[1:2]
    else:
        found = [name.partition("[")[0]] if re.match(r"[A-Za-z_]\w*\[.*\]\+?=", name) else []
    return [match[0] for text in found if (match := _NAME.match(text))]


def plain_text(word: Word) -> str:
    """Return a word whose parts need no expansion, as written."""
    return "" if any(p.is_expansion for p in word.parts) else "".join(p.text for p in word.parts)
