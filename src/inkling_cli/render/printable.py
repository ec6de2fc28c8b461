"""Names from other people's files made safe to print.

A terminal obeys control characters; a tensor name or a launch file may hold them.
"""


def printable(text: str) -> str:
    r"""Return a text on one line, control characters as `\x1b` or `\n`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def printable_lines(text: str) -> str:
    r"""Return a text with its line ends and tabs kept, other control characters as `\x1b`."""
    return "".join(c if c in "\n\t" else printable(c) for c in text)
