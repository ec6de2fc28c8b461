"""A shell text → the launches in it, with the variables that each of them sees.

Runs nothing: statements are followed from top to bottom, both branches of every condition and the
body of every function and loop included, each once; the text of `sh -c '…'` and of `eval` is read
too. The trap: `NAME=value` on a line of its own does not reach the server unless it is exported;
those go to `Launch.unseen`.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from inkling_cli.checks.finding import Location
from inkling_cli.checks.launch.launch import Argument, Launch, LaunchForm, Problem, ProblemKind
from inkling_cli.checks.launch.parse.command import Frame, build_launch, find_image, find_program
from inkling_cli.checks.launch.parse.given import Given
from inkling_cli.checks.launch.parse.shell_state import (
    DECLARATIONS,
    Assigner,
    ShellState,
    names_filled,
    plain_text,
)
from inkling_cli.checks.launch.parse.shell_words import Statement, Word, iter_statements
from inkling_cli.checks.launch.parse.traced import Traced, unknown_text
from inkling_cli.checks.launch.parse.wrappers import (
    is_walled,
    place_behind_wrapper,
    variables_behind,
)
from inkling_cli.checks.launch.text.origins import WordOrigin
from inkling_cli.checks.launch.text.places import CommandEnd, ScriptStatement, VariablePlace
from inkling_cli.checks.launch.text.source import Embedded, unchangeable
from inkling_runtime.errors import InklingError

_CONTROL_WORDS = frozenset(
    ("if", "then", "else", "elif", "fi", "while", "until", "do", "done", "!", "time")
)
_NOT_STARTING = frozenset(("echo", "printf", "for", "case", "pkill", "pgrep", "grep", ":", "[["))
"""Words whose further words name a server without starting it."""
_SHELLS = frozenset(("sh", "bash", "zsh", "dash", "ash"))
_ENGINES = ("VLLM_", "SGLANG_", "INKLING_")
_MAX_NESTING = 8
_MAX_BRACKETS = 500


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
        InklingError: a variable grows without bound, or brackets are nested without bound.
    """
    shell = _Shell(embedded, given, form, place, container, depth)
    yield from shell.follow()


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


@dataclass
class _Bracket:
    """An open `(`, `{` or `case`: the state to return to, and names local to a function."""

    kind: str
    state: ShellState
    is_function: bool = False
    local: list[str] = field(default_factory=list)


class _Shell:
    def __init__(
        self,
        embedded: Embedded,
        given: Given,
        form: LaunchForm,
        place: VariablePlace | None,
        container: str | None,
        depth: int,
        state: ShellState | None = None,
    ) -> None:
        self.embedded = embedded
        self.given = given
        self.form = form
        self.place = place
        self.container = container
        self.depth = depth
        self.state = state or ShellState.inherited(given.environment)
        self.brackets: list[_Bracket] = []
        self.is_named = False
        """Whether `name ()` was just read: what follows is the body of a function."""

    @property
    def assigner(self) -> Assigner:
        return Assigner(self.embedded, self.state)

    def follow(self) -> Iterator[Launch]:
        """Yield the launches of all statements."""
        before = ";"
        for statement in iter_statements(self.embedded.text):
            words = self._open(statement.words)
            if words:
                is_apart = "|" in (before, statement.operator) or statement.operator == "&"
                outer = self.state
                self.state = outer.copy() if is_apart else outer
                yield from self.run(words)
                self.state = outer if is_apart else self.state
            self._bracket(statement)
            if statement.words or statement.operator == ")":
                self.is_named = before == "(" and statement.operator == ")" and not words
            before = statement.operator

    def _open(self, words: list[Word]) -> list[Word]:
        """Return a statement without the control words ahead of it, brackets followed."""
        while words:
            name = _unquoted(words[0])
            if name == "function":
                self.is_named = True
            elif name == "{":
                self._push("{")
            elif name == "}":
                self._close("{")
            elif name == "esac":
                self._close("case")
            elif name not in _CONTROL_WORDS:
                break
            words = words[2:] if name == "function" else words[1:]
        return words

    def _bracket(self, statement: Statement) -> None:
        if statement.operator == "(":
            self._push("(")
        elif statement.operator == ")" and not self._is_pattern():
            self._close("(")
        elif statement.words and _unquoted(statement.words[0]) == "case":
            self._push("case")

    def _is_pattern(self) -> bool:
        return bool(self.brackets) and self.brackets[-1].kind == "case"

    def _push(self, kind: str) -> None:
        if len(self.brackets) >= _MAX_BRACKETS:
            raise InklingError(f"`{self.embedded.file.name}` is nested too deeply")
        state = self.state if kind == "case" else self.state.copy()
        self.brackets.append(_Bracket(kind, state, self.is_named))
        self.is_named = False

    def _close(self, kind: str) -> None:
        """Leave the innermost bracket if it is of a kind: undo what does not outlast it."""
        if not self.brackets or self.brackets[-1].kind != kind:
            return
        bracket = self.brackets.pop()
        if kind == "(":
            self.state = bracket.state
        for name in bracket.local:
            self.state.restore(name, bracket.state)

    def run(self, statement: list[Word]) -> Iterator[Launch]:
        """Follow one simple command; yield its launch if it starts a server."""
        count = next((i for i, w in enumerate(statement) if not w.assigned_name), len(statement))
        assignments, command = statement[:count], statement[count:]
        if not command:
            for word in assignments:
                self.assigner.assign(word, assignments[0])
            return
        name = plain_text(command[0])
        texts = [plain_text(word) for word in command]
        if name in DECLARATIONS:
            local = self.assigner.declare(name, command)
            inner = next((b for b in reversed(self.brackets) if b.is_function), None)
            if inner is not None:
                inner.local += local
        elif name == "unset":
            for text in texts[1:] if "-f" not in texts else []:
                self.state.unset(text)
        elif name == "set":
            self.state.set_flags(texts[1:])
        else:
            yield from self._command(assignments, command)
            for filled in names_filled(texts):
                self.state.lose(filled, self.assigner.place(command[0], filled))

    def _command(self, assignments: list[Word], command: list[Word]) -> Iterator[Launch]:
        expander = self.assigner.expander()
        words = [argument for word in command for argument in expander.split(word)]
        self.assigner.keep_defaults(expander, command[0])
        if not words or words[0].text in _NOT_STARTING:
            return
        words = [*self._in_front(assignments), *words]
        statement = [*assignments, *command]
        program = find_program(words)
        if program is None:
            yield from self._inner(statement, words)
            return
        program = replace(program, engine=self.given.engine or program.engine)
        ahead = words[: program.start + 1]
        launch = build_launch(program, words, self._frame(statement, ahead))
        problems = dict.fromkeys(
            Problem(ProblemKind.UNKNOWN_SHELL_VALUE, inner, self._place(word, inner))
            for word in words
            for inner in word.unknown
        )
        problems |= dict.fromkeys(
            Problem(ProblemKind.UNKNOWN_SHELL_VALUE, inner, variable.location)
            for variable in launch.variables.values()
            if variable.name.startswith(_ENGINES)
            for inner in variable.unknown
        )
        unseen = {n: v for n, v in self.state.unseen.items() if n not in self.state.used}
        yield replace(
            launch,
            problems=(*launch.problems, *problems),
            unseen={} if is_walled(ahead) else unseen,
        )

    def _place(self, word: Argument, inner: str) -> Location:
        return Location(self.embedded.file.name, word.line, unknown_text(inner).text)

    def _in_front(self, assignments: list[Word]) -> Iterator[Argument]:
        """Yield the `NAME=value` words in front of a command; later ones see earlier ones."""
        assigner = Assigner(self.embedded, self.state.copy() if assignments else self.state)
        for word in assignments:
            name = word.assigned_name or ""
            assigner.assign(word, word)
            value = assigner.state.variables[name]
            if not isinstance(value, Traced):
                continue
            is_whole = word.parts[0].text.startswith(f"{name}=")
            origin = WordOrigin(self.embedded, word.start, word.end) if is_whole else None
            line = self.embedded.line(word.start)
            yield Argument(f"{name}={value.text}", line, origin, value.unknown)

    def _frame(self, statement: list[Word], before: list[Argument]) -> Frame:
        return Frame(
            file=self.embedded.file.name,
            form=self.form,
            variables=self.state.exported,
            given=self.given,
            option_place=CommandEnd(self.embedded, statement[-1].end, self._gap(statement)),
            variable_place=self._variable_place(statement, before),
            container=self.container,
        )

    def _variable_place(
        self, statement: list[Word], before: list[Argument]
    ) -> VariablePlace | None:
        ahead = ScriptStatement(self.embedded, statement[0].start)
        return self.place or place_behind_wrapper(self.embedded, before, ahead, find_image)

    def _gap(self, statement: list[Word]) -> str:
        """Return what stands ahead of the last option, if it begins a line; else one blank."""
        for before, word in zip(statement[-2::-1], statement[:0:-1], strict=False):
            if self.embedded.text[word.start] == "-":
                gap = self.embedded.text[before.end : word.start]
                return gap if re.fullmatch(r"[ \t]*\\\n[ \t]*", gap) else " "
        return " "

    def _inner(self, statement: list[Word], words: list[Argument]) -> Iterator[Launch]:
        """Yield the launches in the text that a command gives to a shell, or to this one."""
        if self.depth >= _MAX_NESTING:
            return
        place = self._variable_place(statement, words)
        count = next(i for i, word in enumerate(statement) if not word.assigned_name)
        if plain_text(statement[count]) == "eval":
            yield from self._eval(statement[:count], words, place)
            return
        given = self.given.with_environment(self.state.exported)
        yield from parse_nested(
            words, self.embedded, given, self.form, self.container, self.depth + 1, place
        )

    def _eval(
        self, assignments: list[Word], words: list[Argument], place: VariablePlace | None
    ) -> Iterator[Launch]:
        """Follow `eval`: its words, joined, in this very shell."""
        state = self.state.copy() if assignments else self.state
        for word in assignments:
            Assigner(self.embedded, state).assign(word, word, exported=True)
        names = [word.text for word in words]
        text = " ".join(names[names.index("eval") + 1 :])
        start = words[0].origin.start if isinstance(words[0].origin, WordOrigin) else 0
        at, _ = self.embedded.span(start, start)
        inner = unchangeable(self.embedded.file, text, at, at)
        shell = _Shell(inner, self.given, self.form, place, self.container, self.depth + 1, state)
        yield from shell.follow()


def parse_nested(
    words: Sequence[Argument],
    around: Embedded,
    given: Given,
    form: LaunchForm = LaunchForm.COMMAND,
    container: str | None = None,
    depth: int = 1,
    place: VariablePlace | None = None,
) -> Iterator[Launch]:
    """Yield the launches in the text that a command gives to a shell.

    The text stands quoted in another: its words have lines, but cannot be changed.
    """
    word = find_shell_text(words)
    if word is None:
        return
    start, end = word.origin.span if word.origin else around.span(0, 0)
    inner = unchangeable(around.file, word.text, start, end)
    variables = variables_behind(
        words[: words.index(word)], given.environment, given, around.file.name
    )
    given = given.with_environment(variables)
    yield from parse_script(inner, given, form, place, container=container, depth=depth)


def _unquoted(word: Word) -> str:
    """Return a word as a shell sees control words: nothing of it is quoted."""
    return "" if any(part.is_quoted for part in word.parts) else plain_text(word)
