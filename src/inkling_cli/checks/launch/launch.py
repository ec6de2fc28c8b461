"""A launch of a server as data: what was written, where, and nothing looked up yet.

Made by `parse/` without I/O, resolved to a subject by `subject.py`. What an option means when
it is absent (its default) is a rule's business: `Launch` only says that it is absent.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Location
from inkling_cli.checks.launch.text.origins import Origin
from inkling_cli.checks.launch.text.places import OptionPlace, VariablePlace

COMMAND_LINE = "<command line>"
ENVIRONMENT = "<environment>"
STANDARD_INPUT = "<stdin>"


class LaunchForm(StrEnum):
    """What a launch was written as; remedies are phrased in the same form."""

    COMMAND = "command"
    SCRIPT = "script"
    CONFIG = "config"
    COMPOSE = "compose"
    KUBERNETES = "kubernetes"
    ENV_FILE = "env file"


class ProblemKind(StrEnum):
    """What the parser could not take as it stands. One rule speaks of each kind."""

    MISSPELT_OPTION = "misspelt option"
    UNKNOWN_OPTION = "unknown option"
    AMBIGUOUS_OPTION = "ambiguous option"
    UNDERSCORE_OPTION = "underscore option"
    MISSING_VALUE = "missing value"
    UNEXPECTED_VALUE = "unexpected value"
    STRAY_ARGUMENT = "stray argument"
    MODEL_NOT_FIRST = "model not first"
    MALFORMED_ADAPTER = "malformed adapter"
    UNKNOWN_SHELL_VALUE = "unknown shell value"
    UNREADABLE_IN_CONFIG = "unreadable in a config file"
    MISSING_CONFIG = "missing config"


@dataclass(frozen=True, slots=True)
class Argument:
    """One word of a launch, the line it stands on, and where exactly, if it can be changed."""

    text: str
    line: int | None = None
    origin: Origin | None = field(default=None, compare=False, repr=False)
    unknown: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """The shell expansions in it that have no value here, without their `$`."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Words of the launch that the parser could not take, and what it knows about them."""

    kind: ProblemKind
    text: str
    location: Location
    detail: tuple[str, ...] = ()
    word: Argument | None = field(default=None, compare=False, repr=False)
    """The word of it that can be changed."""


@dataclass(frozen=True, slots=True)
class OptionUse:
    """One use of an option: canonical name, values as written, and the spelling in the input."""

    name: str
    values: tuple[str, ...]
    spelled: str
    location: Location
    enabled: bool = True
    """False for `--no-…` and `--disable-…`."""
    words: tuple[Argument, ...] = field(default=(), compare=False, repr=False)
    """The words that it consists of, the option first."""


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable that the launch sets or inherits."""

    name: str
    value: str
    location: Location
    exported: bool = True
    """False for a shell assignment that the server never sees."""
    origin: Origin | None = field(default=None, compare=False, repr=False)
    """Where its value stands, if it can be changed."""
    statement: Origin | None = field(default=None, compare=False, repr=False)
    """Where the shell statement that assigns it stands."""
    unknown: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """The shell expansions in its value that have no value here, without their `$`."""


@dataclass(frozen=True, slots=True)
class AdapterRef:
    """An adapter that the launch names (or that the user adds with `--lora`)."""

    name: str
    path: str
    location: Location
    pinned: bool = False
    at_startup: bool = True
    """False: to be loaded while the server runs."""
    source: str | None = None
    """Where the files lie on this machine, if not at `path`."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One start of one server."""

    engine: Engine
    form: LaunchForm
    program: tuple[str, ...]
    model: str | None
    model_location: Location
    uses: tuple[OptionUse, ...]
    variables: Mapping[str, Variable]
    adapters: tuple[AdapterRef, ...]
    problems: tuple[Problem, ...]
    location: Location
    image_version: str | None = None
    """The engine's version, where the launch itself tells it."""
    is_engine_config: bool = False
    """A file that the engine itself would read by its `--config`."""
    unseen: Mapping[str, Variable] = field(default_factory=dict)
    """Variables that a script assigns without exporting or using them."""
    option_place: OptionPlace | None = field(default=None, compare=False, repr=False)
    """Where a further option would stand."""
    variable_place: VariablePlace | None = field(default=None, compare=False, repr=False)
    """Where a further variable would stand."""
    container: str | None = None
    """The name of the service or container, where a file holds several."""

    def use(self, name: str) -> OptionUse | None:
        """Return the use of an option that takes effect (the last one)."""
        return next((use for use in reversed(self.uses) if use.name == name), None)

    def is_on(self, name: str) -> bool:
        """Return whether a switch is on; absent counts as off."""
        return bool((use := self.use(name)) and use.enabled)

    def text(self, name: str) -> str | None:
        """Return the value of an option that takes one."""
        use = self.use(name)
        return use.values[-1] if use and use.values else None

    def values(self, name: str) -> tuple[str, ...]:
        """Return the values of an option that takes many."""
        use = self.use(name)
        return use.values if use else ()

    def integer(self, name: str) -> int | None:
        """Return the value of an option as a whole number; None if absent or not one."""
        return parse_integer(self.text(name))

    def variable(self, name: str) -> str | None:
        """Return the value that the server sees of an environment variable."""
        found = self.variables.get(name)
        return found.value if found else None

    def at(self, name: str) -> Location:
        """Return where an option or a variable stands; the launch itself where it does not."""
        if use := self.use(name):
            return use.location
        if found := self.variables.get(name):
            return found.location
        return Location(self.location.file, self.location.line, self.key_of(name))

    def key_of(self, name: str) -> str:
        """Return what an option is called in this launch: a config file has no dashes in front."""
        if self.form is not LaunchForm.CONFIG:
            return name
        use = self.use(name)
        return (use.spelled if use else name).lstrip("-")

    def problems_of(self, kind: ProblemKind) -> Iterator[Problem]:
        """Yield the problems of one kind."""
        return (problem for problem in self.problems if problem.kind is kind)


def parse_integer(text: str | None) -> int | None:
    """Return a whole number as Python's `int` reads it, or None."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
