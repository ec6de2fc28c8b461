"""A shell script → the launches in it, with the variables that each of them sees.

Runs nothing: assignments, `export`, `unset` and `set -a` are followed from top to bottom, both
branches of every condition included. The trap: `NAME=value` on a line of its own does not reach
the server unless it is exported; those go to `Launch.unseen`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Location
from inkling_cli.checks.launch.launch import Launch, LaunchForm, Problem, ProblemKind, Variable
from inkling_cli.checks.launch.parse_arguments import Argument
from inkling_cli.checks.launch.parse_command import build_launch, find_program
from inkling_cli.checks.launch.shell_expand import Expander, Value
from inkling_cli.checks.launch.shell_words import Word, iter_statements
from inkling_runtime.errors import InklingError

_CONTROL_WORDS = frozenset(
    ("if", "then", "else", "elif", "fi", "while", "until", "do", "done", "{", "}", "!", "time")
)
_DECLARATIONS = frozenset(("export", "declare", "typeset", "local", "readonly"))
_MAX_VALUE = 1_000_000


def parse_script(
    text: str, file: str, environment: Mapping[str, Variable], engine: Engine | None = None
) -> Iterator[Launch]:
    """Yield the launches of a script in order.

    Args:
        text: the script.
        file: its name, for locations.
        environment: the variables that the script inherits.
        engine: overrides what the commands say.

    Raises:
        InklingError: a variable grows without bound.
    """
    shell = _Shell(file, environment, engine)
    for statement in iter_statements(text):
        if (launch := shell.run(statement)) is not None:
            yield launch


class _Shell:
    def __init__(
        self, file: str, environment: Mapping[str, Variable], engine: Engine | None
    ) -> None:
        self.file = file
        self.engine = engine
        self.variables: dict[str, Value] = {v.name: v.value for v in environment.values()}
        self.exported: dict[str, Variable] = dict(environment)
        self.unseen: dict[str, Variable] = {}
        self.exports_all = False

    def run(self, statement: list[Word]) -> Launch | None:
        """Follow one simple command; return its launch if it starts a server."""
        while statement and _plain(statement[0]) in _CONTROL_WORDS:
            statement = statement[1:]
        count = next((i for i, w in enumerate(statement) if not w.assigned_name), len(statement))
        assignments, command = statement[:count], statement[count:]
        if not command:
            for word in assignments:
                self._assign(word, exported=self.exports_all)
            return None
        name = _plain(command[0])
        if name in _DECLARATIONS:
            self._declare(name, command[1:])
        elif name == "unset":
            for word in command[1:]:
                self._unset(_plain(word))
        elif name == "set":
            self._set([_plain(word) for word in command[1:]])
        else:
            return self._command(assignments, command)
        return None

    def _command(self, assignments: list[Word], command: list[Word]) -> Launch | None:
        expander = Expander(self.variables)
        words = [
            Argument(text, word.line)
            for word in (*assignments, *command)
            for text in ([expander.join(word)] if word in assignments else expander.split(word))
        ]
        program = find_program(words)
        if program is None:
            return None
        program = replace(program, engine=self.engine or program.engine)
        launch = build_launch(program, words, self.exported, self.file, LaunchForm.SCRIPT)
        unseen = {name: v for name, v in self.unseen.items() if name not in expander.used}
        problems = [
            Problem(ProblemKind.UNKNOWN_SHELL_VALUE, inner, launch.location)
            for inner in dict.fromkeys(expander.unknown)
        ]
        return replace(launch, problems=(*launch.problems, *problems), unseen=unseen)

    def _assign(self, word: Word, *, exported: bool) -> None:
        name = word.assigned_name or ""
        value = self._value(name, word)
        if len(value) > _MAX_VALUE or sum(map(len, value)) > _MAX_VALUE:
            raise InklingError(f"`{self.file}:{word.line}` makes `{name}` larger than 1 MB")
        self.variables[name] = value
        if not isinstance(value, str):
            return
        variable = Variable(name, value, Location(self.file, word.line, name), exported)
        if exported or name in self.exported:
            self.exported[name] = replace(variable, exported=True)
            self.unseen.pop(name, None)
        else:
            self.unseen[name] = variable

    def _value(self, name: str, word: Word) -> Value:
        expander = Expander(self.variables)
        old = self.variables.get(name, "")
        is_appended = word.parts[0].text.partition("=")[0].endswith("+")
        if word.items is not None:
            items = tuple(text for item in word.items for text in expander.split(item))
            return (
                (*([old] if isinstance(old, str) and old else old), *items)
                if is_appended
                else items
            )
        value = expander.join(word).partition("=")[2]
        return str(old) + value if is_appended and isinstance(old, str) else value

    def _declare(self, name: str, words: list[Word]) -> None:
        flags = [_plain(word) for word in words if _plain(word).startswith("-")]
        exported = (name == "export" and "-n" not in flags) or any("x" in f for f in flags)
        for word in words:
            if word.assigned_name:
                self._assign(word, exported=exported or self.exports_all)
            elif exported and (variable := self.unseen.pop(_plain(word), None)):
                self.exported[variable.name] = replace(variable, exported=True)
            elif name == "export" and "-n" in flags:
                self.exported.pop(_plain(word), None)

    def _unset(self, name: str) -> None:
        for variables in (self.variables, self.exported, self.unseen):
            variables.pop(name, None)

    def _set(self, words: list[str]) -> None:
        if "-a" in words or ("allexport" in words and "-o" in words):
            self.exports_all = True
        elif "+a" in words or ("allexport" in words and "+o" in words):
            self.exports_all = False


def _plain(word: Word) -> str:
    """Return a word whose parts need no expansion, as written."""
    return "" if any(p.is_expansion for p in word.parts) else "".join(p.text for p in word.parts)
