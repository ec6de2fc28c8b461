"""Substitutes variables in the texts of container files: `${NAME:-x}` of compose, `$(NAME)`.

The trap: in a compose file the values come from the shell that starts compose and from `.env`, not
from the service's own `environment`; in Kubernetes `$(NAME)` is one of the container's own.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from inkling_cli.checks.launch.launch import Variable
from inkling_cli.checks.launch.text.source import Embedded

_COMPOSE = re.compile(
    r"\$(?:(?P<escaped>\$)|\{(?P<braced>[A-Za-z_]\w*)(?:(?P<sign>:?[-?+])(?P<text>[^}]*))?\}"
    r"|(?P<plain>[A-Za-z_]\w*))"
)
_KUBERNETES = re.compile(r"\$\$(?=\()|\$\((?P<name>[A-Za-z_][\w.-]*)\)")


@dataclass
class Interpolation:
    """Substitutes against variables; `unknown` collects names without a value."""

    variables: Mapping[str, Variable]
    unknown: list[str] = field(default_factory=list)

    def compose(self, embedded: Embedded) -> Embedded:
        """Return a text of a compose file with its `$NAME` and `${NAME…}` substituted."""
        made = _substitute(embedded, _COMPOSE, self._compose_value)
        put = made.put
        return replace(made, put=lambda new: put(new.replace("$", "$$")))

    def kubernetes(self, embedded: Embedded) -> Embedded:
        """Return a text of a manifest with its `$(NAME)` substituted."""
        return _substitute(embedded, _KUBERNETES, self._kubernetes_value)

    def _compose_value(self, found: re.Match[str]) -> str:
        if found["escaped"]:
            return "$"
        name = found["braced"] or found["plain"]
        known = self.variables.get(name)
        sign, text = found["sign"] or "", found["text"] or ""
        is_set = known is not None and (known.value != "" or not sign.startswith(":"))
        if sign.endswith("+"):
            return text if is_set else ""
        if known is not None and is_set:
            return known.value
        if sign.endswith("-"):
            return text
        self.unknown.append(name)
        return f"${{{name}}}"

    def _kubernetes_value(self, found: re.Match[str]) -> str:
        if found["name"] is None:
            return "$"
        known = self.variables.get(found["name"])
        if known is None:
            self.unknown.append(found["name"])
            return found[0]
        return known.value


def _substitute(
    embedded: Embedded, pattern: re.Pattern[str], value: Callable[[re.Match[str]], str]
) -> Embedded:
    """Return the text with every match replaced; each new character stands where the match does."""
    text = ""
    starts: list[int] = []
    ends: list[int] = []
    position = 0
    for found in pattern.finditer(embedded.text):
        text += embedded.text[position : found.start()]
        starts += embedded.starts[position : found.start()]
        ends += embedded.ends[position : found.start()]
        new = value(found)
        start, end = embedded.span(found.start(), found.end())
        text += new
        starts += [start] * len(new)
        ends += [end] * len(new)
        position = found.end()
    text += embedded.text[position:]
    return replace(
        embedded,
        text=text,
        starts=[*starts, *embedded.starts[position:]],
        ends=[*ends, *embedded.ends[position:]],
    )
