"""The inputs of one run: one command, or one or several files; some may hold no launch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Finding, Location
from inkling_cli.checks.launch.fix.fixing import Fixed, fix_text
from inkling_cli.checks.launch.judge import Judge, Judged
from inkling_cli.checks.launch.launch import COMMAND_LINE
from inkling_cli.checks.launch.parse.adapter_refs import parse_given_adapters
from inkling_cli.checks.launch.parse.given import Given
from inkling_cli.checks.launch.parse.no_launch import NoLaunchError
from inkling_cli.checks.launch.read import LaunchSource, read_environment, read_source


@dataclass(frozen=True, slots=True)
class Checked:
    """What came of all inputs.

    Attributes:
        judged: the launches, checked; where changes were made, after these.
        others: the files that hold no launch.
        fixes: for each corrected source what became of it; empty where none was asked for.
    """

    judged: tuple[Judged, ...]
    others: tuple[str, ...] = ()
    fixes: tuple[tuple[LaunchSource, Fixed], ...] = ()

    @property
    def fixed(self) -> tuple[Finding, ...]:
        """The findings that were remedied."""
        return tuple(finding for _, fix in self.fixes for finding in fix.fixed)


def make_judge(
    *,
    engine: Engine | None = None,
    version: str | None = None,
    model: str | None = None,
    lora: Sequence[str] = (),
    env: Sequence[str] = (),
    env_files: Sequence[str] = (),
    inherited: Mapping[str, str],
    gpu_memory: int | None = None,
) -> Judge:
    """Return a judge of launches with what the options of a command say beside them.

    Raises:
        InklingError: a variable has no name, or an env file cannot be read.
    """
    environment = read_environment(inherited, env, env_files)
    adapters = parse_given_adapters(lora, Location(COMMAND_LINE, key="--lora"))
    return Judge(Given(environment, engine, version, gpu_memory), model, adapters)


def read_sources(words: Sequence[str]) -> tuple[LaunchSource, ...]:
    """Return the inputs that arguments are: several words that all are files are an input each.

    Raises:
        InklingError: an input is not there, or not text.
    """
    if len(words) > 1 and all(map(_is_file, words)):
        return tuple(read_source([word]) for word in words)
    return (read_source(words),)


def check_sources(
    judge: Judge, sources: Sequence[LaunchSource], *, skip_others: bool, fix: bool
) -> Checked:
    """Return the launches of all sources, checked, and corrected where `fix` is set.

    Raises:
        InklingError: a source is malformed, or holds no launch and is not to be skipped.
    """
    judged: list[Judged] = []
    others: list[str] = []
    fixes: list[tuple[LaunchSource, Fixed]] = []
    for source in sources:
        try:
            if fix:
                fixes.append((source, fix_text(source.text, partial(judge.text, source))))
                judged += fixes[-1][1].judged
            else:
                judged += judge.source(source)
        except NoLaunchError:
            if not skip_others:
                raise
            others.append(source.name)
    return Checked(tuple(judged), tuple(others), tuple(fixes))


def _is_file(word: str) -> bool:
    try:
        return Path(word).is_file()
    except (OSError, ValueError):
        return False
