"""The words ahead of a server's program → the variables that the server sees through them.

`env` sets and removes variables; `docker run`, `sudo`, `ssh` start the server in an environment of
its own. The trap: what a script exports does not reach a container.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from inkling_cli.checks.finding import Location
from inkling_cli.checks.launch.launch import COMMAND_LINE, ENVIRONMENT, Argument, Variable
from inkling_cli.checks.launch.parse.given import Given
from inkling_cli.checks.launch.text.origins import NodeOrigin, Origin, WordOrigin
from inkling_cli.checks.launch.text.places import CommandStart, VariablePlace
from inkling_cli.checks.launch.text.source import Embedded

_CONTAINER_TOOLS = frozenset(("docker", "podman", "nerdctl"))
_OTHER_ENVIRONMENTS = frozenset(("sudo", "ssh", "kubectl", "su"))
_KEEPS_ENVIRONMENT = re.compile(r"-[A-Za-z]*E[A-Za-z]*|--preserve-env(?:=.*)?")
_ASSIGNMENT = re.compile(r"((?:--env=|-e)?([A-Za-z_]\w*)=)(.*)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*")

IsImage = Callable[[str], object]


def variables_behind(
    words: Sequence[Argument], variables: Mapping[str, Variable], given: Given, file: str
) -> dict[str, Variable]:
    """Return the variables that a server sees.

    Args:
        words: the words ahead of its program.
        variables: what the command itself sees.
        given: what the user says beside the launch; it holds for the server wherever it runs.
        file: the launch's.
    """
    seen = dict(variables)
    outside: dict[str, Variable] | None = None
    names = [word.text.rpartition("/")[2] for word in words]
    for i, (name, word) in enumerate(zip(names, words, strict=True)):
        before = words[i - 1].text if i else ""
        if outside is not None and before in ("-e", "--env") and _NAME.fullmatch(word.text):
            seen.update({word.text: outside[word.text]} if word.text in outside else {})
        elif found := _assignment(word, file):
            seen[found.name] = found
        elif outside is None and _starts_anew(words, i):
            outside, seen = seen, _of_user(given, file)
        elif name == "env":
            for removed in _removed(words[i + 1 :]):
                seen.pop(removed, None)
    return seen


def _starts_anew(words: Sequence[Argument], index: int) -> bool:
    """Return whether a word starts what follows in an environment of its own."""
    name = words[index].text.rpartition("/")[2]
    if name == "sudo":
        return not any(_KEEPS_ENVIRONMENT.fullmatch(word.text) for word in words[index + 1 :])
    return name in _CONTAINER_TOOLS or name in _OTHER_ENVIRONMENTS


def _of_user(given: Given, file: str) -> dict[str, Variable]:
    """Return what the user gives for the server: not what this process or the script has."""
    elsewhere = {ENVIRONMENT, file} - {COMMAND_LINE}
    return {n: v for n, v in given.environment.items() if v.location.file not in elsewhere}


def _removed(words: Sequence[Argument]) -> Iterator[str]:
    """Yield the names that `env -u NAME` removes."""
    texts = [word.text for word in words]
    for i, text in enumerate(texts):
        if text in ("-u", "--unset"):
            yield from texts[i + 1 : i + 2]
        elif text.startswith("--unset="):
            yield text.partition("=")[2]


def _assignment(word: Argument, file: str) -> Variable | None:
    """Return the variable that a `K=V` word (also `-e K=V`, `--env=K=V`) sets."""
    match = _ASSIGNMENT.fullmatch(word.text)
    if match is None:
        return None
    prefix, name, value = match.groups()
    origin = _behind(word.origin, prefix)
    place = Location(file, word.line, name)
    return Variable(name, value, place, origin=origin, unknown=word.unknown)


def _behind(origin: Origin | None, prefix: str) -> Origin | None:
    """Return the origin of a word's value that stands behind a prefix in the same word."""
    if isinstance(origin, WordOrigin | NodeOrigin):
        return replace(origin, prefix=prefix)
    return None


def is_walled(words: Sequence[Argument]) -> bool:
    """Return whether a wrapper among these words keeps the variables of the command out."""
    return any(_starts_anew(words, i) for i in range(len(words)))


def place_behind_wrapper(
    embedded: Embedded, before: Sequence[Argument], place: VariablePlace, is_image: IsImage
) -> VariablePlace | None:
    """Return where a variable goes so that the server sees it, given the words up to its program.

    That is `place`, unless a wrapper starts the server in an environment of its own: then it is an
    option of the wrapper, or there is no place that is known.
    """
    names = {word.text.rpartition("/")[2] for word in before}
    if not is_walled(before):
        return place
    if names & _OTHER_ENVIRONMENTS - {"sudo"} or not names & _CONTAINER_TOOLS:
        return None
    images = [word.origin for word in before if is_image(word.text)]
    image = images[0] if images else None
    return CommandStart(embedded, image.start, "-e ") if isinstance(image, WordOrigin) else None
