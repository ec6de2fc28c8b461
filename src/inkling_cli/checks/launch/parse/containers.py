"""A container of a compose file or a Kubernetes manifest → the launches that it starts.

Both say the same in different keys: an image, words to start (entrypoint and arguments), and
variables. What an image starts by itself is known for `vllm/vllm-openai` alone.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import yaml

from inkling_cli.checks.finding import Location
from inkling_cli.checks.launch.launch import (
    Argument,
    Launch,
    LaunchForm,
    Problem,
    ProblemKind,
    Variable,
)
from inkling_cli.checks.launch.parse.command import Frame, build_launch, find_program
from inkling_cli.checks.launch.parse.given import Given
from inkling_cli.checks.launch.parse.script import find_shell_text, parse_script
from inkling_cli.checks.launch.parse.shell_expand import Expander
from inkling_cli.checks.launch.parse.shell_words import iter_words
from inkling_cli.checks.launch.text.origins import NodeOrigin, WordOrigin
from inkling_cli.checks.launch.text.places import CommandEnd, ListEnd, OptionPlace, VariablePlace
from inkling_cli.checks.launch.text.source import Embedded, FileText, unchangeable
from inkling_cli.checks.launch.text.yaml_nodes import embed_scalar

Substitute = Callable[[Embedded], Embedded]


@dataclass(frozen=True, slots=True)
class Words:
    """Words of a container: what they are, and where further ones would stand."""

    arguments: tuple[Argument, ...] = ()
    place: OptionPlace | None = None
    scripts: Mapping[int, Embedded] = field(default_factory=dict)
    """For words that may be shell text: the word's index → the text with its places."""


@dataclass(frozen=True, slots=True)
class Container:
    """One container.

    Attributes:
        name: of the service or the container.
        line: where it begins.
        image: its image, None where it is built.
        entrypoint: the words that replace the image's own; None where they do not.
        command: the words after the entrypoint.
        variables: what the server sees.
        variable_place: where a further variable would stand.
        unknown: names that were substituted nowhere.
    """

    name: str
    line: int
    image: str | None
    entrypoint: Words | None
    command: Words
    variables: Mapping[str, Variable]
    variable_place: VariablePlace | None
    unknown: tuple[str, ...] = ()


def read_list(file: FileText, node: yaml.SequenceNode, substitute: Substitute) -> Words:
    """Return the words of a list of scalars."""
    arguments: list[Argument] = []
    scripts: dict[int, Embedded] = {}
    for item in node.value:
        if not isinstance(item, yaml.ScalarNode):
            continue
        embedded = substitute(embed_scalar(file, item))
        scripts[len(arguments)] = embedded
        origin = NodeOrigin(file, item, parent=node)
        arguments.append(Argument(embedded.text, item.start_mark.line + 1, origin))
    return Words(tuple(arguments), ListEnd(file, node), scripts)


def read_words(embedded: Embedded) -> Words:
    """Return the words of a command that is one text, as compose splits it: no shell runs."""
    expander = Expander(embedded, {})
    found = list(iter_words(embedded.text))
    arguments = [
        replace(expander.argument(expander.join(word), word), line=embedded.line(word.start))
        for word in found
    ]
    spans = [argument.origin.span for argument in arguments if argument.origin]
    kept = [
        replace(argument, origin=None)
        if argument.origin and spans.count(argument.origin.span) > 1
        else argument
        for argument in arguments
    ]
    end = found[-1].end if found else 0
    return Words(tuple(kept), CommandEnd(embedded, end, " ") if found else None)


def iter_launches(
    container: Container, file: FileText, given: Given, form: LaunchForm
) -> Iterator[Launch]:
    """Yield the launches that a container starts; none where it starts another program."""
    entrypoint = container.entrypoint or Words()
    words = [*entrypoint.arguments, *container.command.arguments]
    place = container.command.place or entrypoint.place
    frame = Frame(
        file.name,
        form,
        container.variables,
        given,
        place,
        container.variable_place,
        container.name,
    )
    if (shell_text := find_shell_text(words)) is not None:
        embedded = _script_of(container, shell_text)
        inner = given.with_environment(container.variables)
        launches = parse_script(
            embedded, inner, form, container.variable_place, container=container.name
        )
        yield from (_finish(launch, container, file) for launch in launches)
        return
    image = [Argument(container.image, container.line)] if container.image else []
    program = find_program([*image, *words])
    if program is None:
        return
    if program.words == (container.image,):
        if container.entrypoint is not None:
            return
        program = replace(program, start=0)
    all_words = [*image, *words]
    program = replace(program, engine=given.engine or program.engine)
    yield _finish(build_launch(program, all_words, frame), container, file)


def _script_of(container: Container, word: Argument) -> Embedded:
    """Return the shell text that a word is, with its places."""
    for words in (container.entrypoint, container.command):
        if words is not None and word in words.arguments:
            found = words.scripts.get(words.arguments.index(word))
            if found is not None:
                return found
    assert isinstance(word.origin, WordOrigin)
    return unchangeable(word.origin.embedded.file, word.text, *word.origin.span)


def _finish(launch: Launch, container: Container, file: FileText) -> Launch:
    """Add what the container says of the launch: the image's version, names without a value."""
    problems = [
        Problem(ProblemKind.UNKNOWN_SHELL_VALUE, name, replace(launch.location, key=name))
        for name in dict.fromkeys(container.unknown)
    ]
    place = launch.location
    if place.line is None:
        place = Location(file.name, container.line)
    return replace(
        launch,
        location=place,
        problems=(*launch.problems, *problems),
        container=container.name,
    )
