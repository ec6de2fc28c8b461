"""A path as people can paste it into a command of a remedy."""

import os
import shlex


def shell_word(path: str | os.PathLike[str]) -> str:
    """Return a path as one word of a shell, which no command takes for an option."""
    text = os.fspath(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)
