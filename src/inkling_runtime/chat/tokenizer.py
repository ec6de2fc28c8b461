"""Tokenizers: `tokenizer.json` beside the model, else Inkling's own vocabulary, else none.

Inkling's vocabulary is o200k_base with the special ids 199998 … 200057, which tml-renderers
carries, so that a checkpoint needs no tokenizer file. Special-token markup in a text is encoded
as text: it never becomes a control token.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tml_renderers.tokenizers import O200kBaseChatTokenizer
from tokenizers import Tokenizer as FastTokenizer

from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.errors import InklingError

INKLING_VOCAB_SIZE = 200058
"""Unpadded size of Inkling's vocabulary."""

TOKENIZER_FILE = "tokenizer.json"


class Tokenizer(Protocol):
    """What the runtime asks of a tokenizer."""

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text, with no special token added."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids; incomplete UTF-8 becomes U+FFFD."""
        ...


class FileTokenizer:
    """A `tokenizer.json`."""

    def __init__(self, path: Path) -> None:
        try:
            self._tokenizer = FastTokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception
            raise InklingError(f"`{path}` is not a tokenizer file: {error}") from error

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text, with no special token added."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids; incomplete UTF-8 becomes U+FFFD."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=False)
        return text


class InklingTokenizer:
    """Inkling's own vocabulary, from tml-renderers."""

    def __init__(self) -> None:
        self._tokenizer = O200kBaseChatTokenizer()

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text, with no special token added."""
        return self._tokenizer.encode_ordinary(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids; incomplete UTF-8 becomes U+FFFD."""
        return self._tokenizer.decode(list(ids))


def find_tokenizer(model: Path, spec: ModelSpec) -> Tokenizer | None:
    """Return the tokenizer for a model folder, or None if only token ids can be used."""
    path = model / TOKENIZER_FILE
    if path.exists():
        return FileTokenizer(path)
    if spec.unpadded_vocab_size == INKLING_VOCAB_SIZE:
        return InklingTokenizer()
    return None


class TextStream:
    """Text of tokens as they come: only whole characters are given out.

    Decoding one token alone would lose spaces that depend on its neighbour and break characters
    that span tokens, so each step decodes a short window and gives out what is new.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._window = 0
        self._given = 0

    def add(self, token_id: int) -> str:
        """Return the text that this token completes; empty inside a character."""
        self._ids.append(token_id)
        before, now = self._decode()
        if now.endswith("�"):
            return ""
        self._window, self._given = self._given, len(self._ids)
        return now[len(before) :]

    def finish(self) -> str:
        """Return what is left, an incomplete character as U+FFFD."""
        before, now = self._decode()
        self._window, self._given = self._given, len(self._ids)
        return now[len(before) :]

    def _decode(self) -> tuple[str, str]:
        return (
            self._tokenizer.decode(self._ids[self._window : self._given]),
            self._tokenizer.decode(self._ids[self._window :]),
        )
