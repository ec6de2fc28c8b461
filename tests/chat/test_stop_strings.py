import pytest
from hypothesis import given
from hypothesis import strategies as st

from inkling_runtime.chat.reply import PartKind, Piece
from inkling_runtime.chat.stop_strings import StopStrings


def text_of(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def feed(stops: list[str], texts: list[str]) -> tuple[list[str], bool]:
    """Return what each text and the end give out, and whether a stop string was found."""
    cutter, given = StopStrings(stops), []
    for index, text in enumerate(texts):
        given.append(text_of(cutter.cut([Piece(PartKind.TEXT, text, index == 0)])))
    given.append(text_of(cutter.finish()))
    return given, cutter.is_found


@pytest.mark.parametrize(
    ("stops", "texts", "given", "is_found"),
    [
        ([], ["ab", "c"], ["ab", "c", ""], False),
        (["END"], ["one E", "N", "D two"], ["one ", "", "", ""], True),
        (["END"], ["one E", "N", "ded"], ["one ", "", "ENded", ""], False),
        (["END"], ["one EN"], ["one ", "EN"], False),
        (["aab"], ["aaa", "b"], ["a", "", ""], True),
        (["b", "abc"], ["a", "b"], ["", "a", ""], True),
        (["x"], ["x"], ["", ""], True),
    ],
)
def test_what_may_be_a_stop_string_is_held_back(
    stops: list[str], texts: list[str], given: list[str], is_found: bool
) -> None:
    assert feed(stops, texts) == (given, is_found)


SHORT = st.text("ab", min_size=1, max_size=4)


@given(st.lists(SHORT, max_size=3), st.lists(SHORT, max_size=12))
def test_the_text_is_that_before_the_first_stop_string_however_it_comes(
    stops: list[str], texts: list[str]
) -> None:
    given, is_found = feed(stops, texts)
    whole, end = "".join(texts), None
    for length in range(len(whole) + 1):
        ends = [length - len(stop) for stop in stops if whole[:length].endswith(stop)]
        if ends:
            end = min(ends)
            break
    assert is_found == (end is not None)
    assert "".join(given) == whole[:end]


def test_each_part_is_looked_through_by_itself() -> None:
    cutter = StopStrings(["END"])
    given = cutter.cut(
        [
            Piece(PartKind.THINKING, "thought E", True),
            Piece(PartKind.TEXT, "ND of it EN", True),
            Piece(PartKind.TEXT, "D more"),
            Piece(PartKind.TEXT, "nothing", True),
        ]
    )
    assert given == [
        Piece(PartKind.THINKING, "thought ", True),
        Piece(PartKind.THINKING, "E"),
        Piece(PartKind.TEXT, "ND of it ", True),
    ]
    assert cutter.is_found


def test_a_part_whose_beginning_is_held_back_still_starts() -> None:
    cutter = StopStrings(["END"])
    assert cutter.cut([Piece(PartKind.TEXT, "E", True)]) == []
    assert cutter.cut([Piece(PartKind.TEXT, "x")]) == [Piece(PartKind.TEXT, "Ex", True)]
