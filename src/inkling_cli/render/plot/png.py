"""The picture as PNG: pixels, zlib and four chunks. Labels are written in a font of 3×5 dots.

The format: a signature, then chunks of length, name, data and CRC-32; each line of pixels begins
with the number of its filter, 0 for none (W3C, Portable Network Graphics, third edition).
"""

import struct
import zlib

from inkling_cli.render.heat import make_heat
from inkling_cli.render.plot.canvas import Canvas, Label, make_canvas
from inkling_runtime.adapter.values import AdapterValues

_CHARACTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ .·-+"
_DOTS = (
    "75557262277174771317557117471774757711117575775717"
    "2575565656344436555674647746443455355755722271115255655444475775565555"
    "255526564425563656553421672222555575555255775552555522271247"
    "0000000002002000070002720"
)
GLYPHS = {character: _DOTS[5 * i : 5 * i + 5] for i, character in enumerate(_CHARACTERS)}
"""Five rows of three dots each, from the top; a row is a number of three bits."""

_DOT = 2
_ADVANCE = 4 * _DOT
_BLACK = bytes((0, 0, 0))


def png_bytes(values: AdapterValues) -> bytes:
    """Return the picture as a file."""
    canvas = make_canvas(make_heat(values))
    pixels = _paint(canvas)
    head = struct.pack(">IIBBBBB", canvas.width, canvas.height, 8, 2, 0, 0, 0)
    lines = b"".join(b"\0" + bytes(line) for line in pixels)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        _chunk(name, data)
        for name, data in (
            (b"IHDR", head),
            (b"IDAT", zlib.compress(lines, 9)),
            (b"IEND", b""),
        )
    )


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def _paint(canvas: Canvas) -> list[bytearray]:
    """Return the lines of the picture, three bytes for each pixel."""
    lines = [bytearray(b"\xff" * (3 * canvas.width)) for _ in range(canvas.height)]
    for box in canvas.boxes:
        _fill(lines, box.x, box.y, box.width, box.height, bytes(box.colour))
    for label in canvas.labels:
        _write(lines, label)
    return lines


def _fill(lines: list[bytearray], x: int, y: int, width: int, height: int, colour: bytes) -> None:
    for line in lines[y : y + height]:
        line[3 * x : 3 * (x + width)] = colour * width


def _write(lines: list[bytearray], label: Label) -> None:
    left = label.x - (_ADVANCE * len(label.text) if label.is_right else 0)
    top = label.y - 5 * _DOT // 2
    for index, character in enumerate(label.text.upper()):
        for row, bits in enumerate(GLYPHS[character]):
            for column in range(3):
                if int(bits) & (4 >> column):
                    x = left + index * _ADVANCE + column * _DOT
                    _fill(lines, x, top + row * _DOT, _DOT, _DOT, _BLACK)
