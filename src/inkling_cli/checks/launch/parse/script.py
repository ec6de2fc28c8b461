"""A shell text → the launches in it, with the variables that each of them sees.

Runs nothing: assignments, `export`, `unset` and `set -a` are followed from top to bottom, both
branches of every condition included; the text of `sh -c '…'` is read too. The trap: `NAME=value`
on a line of its own does not reach the server unless it is exported; those go to `Launch.unseen`.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from inkling_cli.checks.finding import Location
from inkling_cli.checks.launch.launch import (
    Argument,
    Launch,
    LaunchForm,
    Problem,
    ProblemKind,
    Variable,
)
from inkling_cli.checks.launch.parse.command import (
    Frame,
    assignments_before,
    build_launch,
    find_program,
    place_behind_wrapper,
)
from inkling_cli.checks.launch.parse.given import Given
from inkling_cli.checks.launch.parse.shell_expand import Expander, Value
from inkling_cli.checks.launch.parse.shell_words import Word, iter_statements
from inkling_cli.checks.launch.parse.traced import Traced, join, untraced
from inkling_cli.checks.launch.text.origins import WordOrigin
from inkling_cli.checks.launch.text.places import (
    CommandEnd,
    ScriptStatement,
    VariablePlace,
)
from inkling_cli.checks.launch.text.source import Embedded
from inkling_runtime.errors import InklingError

_CONTROL_WORDS = frozenset(
    ("if", "then", "else", "elif", "fi", "while", "until", "do", "done", "{", "}", "!", "time")
)
_DECLARATIONS = frozenset(("export", "declare", "typeset", "local", "readonly"))
_SHELLS = frozenset(("sh", "bash", "zsh", "dash", "ash"))
_MAX_VALUE = 1_000_000
_MAX_NESTING = 8


def parse_script(
    embedded: Embedded,
    given: Given,
    form: LaunchForm = LaunchForm.SCRIPT,
    place: VariablePlace | None = None,
    *,
    container: str | None = None,
    depth: int = 0,
) -> Iterator[Launch]:
    """Yield the launches of a shell text in order.

    Args:
        embedded: the text.
        given: the variables that it inherits, and the engine, if the user says it.
        form: of the launches that are found.
        place: where variables are added; by default ahead of the server's command.
        container: the service or container that runs it.
        depth: how many shells it is already inside of.

    Raises:
        InklingError: a variable grows without bound.
    """
    shell = _Shell(embedded, given, form, place, container, depth)
    for statement in iter_statements(embedded.text):
        yield from shell.run(statement)


def find_shell_text(words: Sequence[Argument]) -> Argument | None:
    """Return the text that a command gives to a shell: the word after `sh -c`."""
    for i, word in enumerate(words[:-2]):
        if word.text.rpartition("/")[2] not in _SHELLS:
            continue
        j = i + 1
        while j < len(words) - 1 and re.fullmatch(r"-[a-z-]*", words[j].text):
            if re.fullmatch(r"-[a-z]*c", words[j].text):
                return words[j + 1]
            j += 1
    return None


class _Shell:
    def __init__(
        self,
        embedded: Embedded,
        given: Given,
        form: LaunchForm,
        place: VariablePlace | None,
        container: str | None,
        depth: int,
    ) -> None:
        self.embedded = embedded
        self.file = embedded.file.name
        self.given = given
        self.form = form
        self.place = place
        self.container = container
        self.depth = depth
        self.variables: dict[str, Value] = {
            v.name: untraced(v.value) for v in given.environment.values()
        }
        self.exported: dict[str, Variable] = dict(given.environment)
        self.unseen: dict[str, Variable] = {}
        self.exports_all = False

    def run(self, statement: list[Word]) -> Iterator[Launch]:
        """Follow one simple command; yield its launch if it starts a server."""
        while statement and _plain(statement[0]) in _CONTROL_WORDS:
            statement = statement[1:]
        count = next((i for i, w in enumerate(statement) if not w.assigned_name), len(statement))
        assignments, command = statement[:count], statement[count:]
        if not command:
            for word in assignments:
                self._assign(word, assignments[0], exported=self.exports_all)
            return
        name = _plain(command[0])
        if name in _DECLARATIONS:
            self._declare(name, command)
        elif name == "unset":
            for word in command[1:]:
                self._unset(_plain(word))
        elif name == "set":
            self._set([_plain(word) for word in command[1:]])
        else:
            yield from self._command(statement, count)

    def _command(self, statement: list[Word], num_assignments: int) -> Iterator[Launch]:
        expander = Expander(self.embedded, self.variables)
        words: list[Argument] = []
        for i, word in enumerate(statement):
            if i < num_assignments:
                words.append(expander.argument(expander.join(word).text, word))
            else:
                words += expander.split(word)
        program = find_program(words)
        if program is None:
            yield from self._nested(words)
            return
        program = replace(program, engine=self.given.engine or program.engine)
        before = words[: program.start + 1]
        launch = build_launch(program, words, self._frame(statement, before))
        problems = [
            Problem(ProblemKind.UNKNOWN_SHELL_VALUE, inner, launch.location)
            for inner in dict.fromkeys(expander.unknown)
        ]
        unseen = {name: v for name, v in self.unseen.items() if name not in expander.used}
        yield replace(launch, problems=(*launch.problems, *problems), unseen=unseen)

    def _frame(self, statement: list[Word], before: list[Argument]) -> Frame:
        ahead = ScriptStatement(self.embedded, statement[0].start)
        return Frame(
            file=self.file,
            form=self.form,
            variables=self.exported,
            given=self.given,
            option_place=CommandEnd(self.embedded, statement[-1].end, self._gap(statement)),
            variable_place=self.place or place_behind_wrapper(self.embedded, before, ahead),
            container=self.container,
        )

    def _gap(self, statement: list[Word]) -> str:
        """Return what stands ahead of the last option, if it begins a line; else one blank."""
        for before, word in zip(statement[-2::-1], statement[:0:-1], strict=False):
            if self.embedded.text[word.start] == "-":
                gap = self.embedded.text[before.end : word.start]
                return gap if re.fullmatch(r"[ \t]*\\\n[ \t]*", gap) else " "
        return " "

    def _nested(self, words: list[Argument]) -> Iterator[Launch]:
        if self.depth < _MAX_NESTING:
            given = self.given.with_environment(self.exported)
            yield from parse_nested(
                words, self.embedded, given, self.form, self.container, self.depth + 1
            )

    def _assign(self, word: Word, statement: Word, *, exported: bool) -> None:
        name = word.assigned_name or ""
        value = self._value(name, word)
        size = len(value.text) if isinstance(value, Traced) else sum(len(v.text) for v in value)
        line = self.embedded.line(word.start)
        if size > _MAX_VALUE:
            raise InklingError(f"`{self.file}:{line}` makes `{name}` larger than 1 MB")
        self.variables[name] = value
        if not isinstance(value, Traced):
            return
        written = word.parts[0].text.partition("=")[0] + "="
        origin = WordOrigin(self.embedded, word.start + len(written), word.end)
        is_whole = not written.endswith("+=")
        variable = Variable(
            name,
            value.text,
            Location(self.file, line, name),
            exported,
            origin if is_whole else None,
            WordOrigin(self.embedded, statement.start, statement.start),
        )
        if exported or name in self.exported:
            self.exported[name] = replace(variable, exported=True)
            self.unseen.pop(name, None)
        else:
            self.unseen[name] = variable

    def _value(self, name: str, word: Word) -> Value:
        expander = Expander(self.embedded, self.variables)
        old = self.variables.get(name, untraced(""))
        is_appended = word.parts[0].text.partition("=")[0].endswith("+")
        if word.items is not None:
            items = tuple(text for item in word.items for text in expander.split(item))
            if not is_appended:
                return items
            if isinstance(old, Traced):
                old = (Argument(old.text),) if old.text else ()
            return (*old, *items)
        whole = expander.join(word)
        value = whole.after(whole.text.index("=") + 1)
        return join([old, value]) if is_appended and isinstance(old, Traced) else value

    def _declare(self, name: str, command: list[Word]) -> None:
        words = command[1:]
        flags = [_plain(word) for word in words if _plain(word).startswith("-")]
        exported = (name == "export" and "-n" not in flags) or any("x" in f for f in flags)
        for word in words:
            if word.assigned_name:
                self._assign(word, command[0], exported=exported or self.exports_all)
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


def parse_nested(
    words: Sequence[Argument],
    around: Embedded,
    given: Given,
    form: LaunchForm = LaunchForm.COMMAND,
    container: str | None = None,
    depth: int = 1,
) -> Iterator[Launch]:
    """Yield the launches in the text that a command gives to a shell.

    The text stands quoted in another: its words have lines, but cannot be changed.
    """
    word = find_shell_text(words)
    if word is None:
        return
    start, end = word.origin.span if word.origin else (0, 0)
    size = len(word.text)
    inner = Embedded(around.file, word.text, [start] * size, [end] * size, lambda new: None)
    given = given.with_environment(
        {**given.environment, **assignments_before(words, around.file.name)}
    )
    yield from parse_script(inner, given, form, container=container, depth=depth)


def _plain(word: Word) -> str:
    """Return a word whose parts need no expansion, as written."""
    return "" if any(p.is_expansion for p in word.parts) else "".join(p.text for p in word.parts)
