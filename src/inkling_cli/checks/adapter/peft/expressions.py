"""Regular expressions of an adapter's config, matched against whole names as PEFT does.

They come from strangers, and `re` never finishes some of them. An automaton matches what is
regular; look-arounds, which it does not know, go to `re` where few repeats keep that quick.
"""

import re
from collections.abc import Callable

from inkling_runtime.adapter.automaton import Automaton
from inkling_runtime.adapter.regex_syntax import PatternError
from inkling_runtime.adapter.shown import shown_text

_REPEATS = re.compile(r"[*+{]")
_REPEATED_GROUP = re.compile(r"\)[*+{]")
_MAX_REPEATS = 3


class UnusableExpressionError(Exception):
    """An expression that does not compile."""


class UnsettledExpressionError(Exception):
    """An expression that may take longer to match than anyone waits."""


def whole_name(expression: str) -> Callable[[str], bool]:
    """Return whether an expression matches a whole name.

    Raises:
        UnusableExpressionError: it does not compile.
        UnsettledExpressionError: it may take longer to match than anyone waits.
    """
    try:
        compiled = re.compile(expression)
    except (re.error, RecursionError, OverflowError) as error:
        raise UnusableExpressionError(f"`{shown_text(expression)}`: {error}") from error
    try:
        automaton = Automaton([f"^(?:{expression})"])
        automaton.first("")
    except PatternError as error:
        if _REPEATED_GROUP.search(expression) or len(_REPEATS.findall(expression)) > _MAX_REPEATS:
            raise UnsettledExpressionError(f"`{shown_text(expression)}`: {error}") from error
        return lambda name: compiled.fullmatch(name) is not None
    return lambda name: automaton.first(name) is not None
