"""Chat prompts as token ids, rendered by tml-renderers.

The format has no beginning-of-text token and no assistant header: the model samples its own. The
effort always appears, as a system message before the first message of another role.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tml_renderers.chat import OpenAIMessage
from tml_renderers.tokenizers import O200kBaseChatTokenizer
from tml_renderers.v0 import Renderer

from inkling_runtime.errors import InklingError

EFFORTS: Mapping[str, float] = {
    "none": 0.0,
    "minimal": 0.1,
    "low": 0.2,
    "medium": 0.7,
    "high": 0.9,
    "xhigh": 0.99,
    "max": 0.99,
}
"""Names of thinking efforts."""

STOP_ID = 200006
"""`content_model_end_sampling`, the id that ends a turn."""

_ROLES = ("system", "developer", "user", "assistant", "tool")


def parse_effort(text: str) -> float:
    """Return the effort that a name or a number in [0, 0.99] means.

    Raises:
        InklingError: neither a known name nor such a number.
    """
    if text in EFFORTS:
        return EFFORTS[text]
    try:
        effort = float(text)
    except ValueError:
        effort = -1.0
    if not 0 <= effort <= 0.99:
        names = ", ".join(EFFORTS)
        raise InklingError(f"the effort is `{text}`, expected {names} or a number from 0 to 0.99")
    return effort


def render_chat(messages: Sequence[Mapping[str, Any]], effort: float) -> list[int]:
    """Return the prompt ids for messages in OpenAI's form (role and content).

    Raises:
        InklingError: a message has no known role, or cannot be rendered.
    """
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping) or message.get("role") not in _ROLES:
            role = message.get("role") if isinstance(message, Mapping) else None
            raise InklingError(
                f"message {index} has the role {role!r}, expected one of {', '.join(_ROLES)}"
            )
    if not messages:
        raise InklingError("there is no message, expected at least one")
    try:
        typed = OpenAIMessage.from_oss_messages([_renamed(message) for message in messages])
        spans, _ = Renderer(O200kBaseChatTokenizer()).render_for_completion_with_effort(
            typed, effort
        )
    except (ValueError, TypeError, KeyError) as error:
        raise InklingError(f"the messages cannot be rendered: {error}") from error
    ids: list[int] = []
    for span in spans:
        if not hasattr(span.span, "int_tokens"):
            raise InklingError("the messages hold an image or audio, expected text only")
        ids += span.span.int_tokens
    return ids


def _renamed(message: Mapping[str, Any]) -> dict[str, Any]:
    renamed = dict(message)
    if renamed["role"] == "developer":
        renamed["role"] = "system"
    return renamed
