"""JSON from strangers: one meaning or an error."""

from pathlib import Path

import pytest
from hostile.configs import NO_OBJECTS
from hostile.pipes import error_from_pipe

from inkling_runtime.adapter.json_file import parse_json_object, read_json_object
from inkling_runtime.errors import InklingError


@pytest.mark.parametrize("name", NO_OBJECTS)
def test_broken_json_is_refused_by_what_is_wrong_with_it(tmp_path: Path, name: str) -> None:
    data, message = NO_OBJECTS[name]
    path = tmp_path / "adapter_config.json"
    path.write_bytes(data)
    with pytest.raises(InklingError) as caught:
        read_json_object(path)
    assert message in caught.value.message
    assert str(path) in caught.value.message


def test_a_sound_object_is_returned_in_its_order() -> None:
    assert list(parse_json_object('{"b": 1, "a": {"é": [null, true, 0.5]}}').items()) == [
        ("b", 1),
        ("a", {"é": [None, True, 0.5]}),
    ]


def test_whole_surrogate_pairs_are_characters() -> None:
    assert parse_json_object(r'{"x": "\ud83d\ude00"}') == {"x": "\U0001f600"}


def test_what_is_not_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InklingError, match="does not exist"):
        read_json_object(tmp_path / "absent.json")
    with pytest.raises(InklingError, match="cannot be read"):
        read_json_object(tmp_path)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(InklingError, match="cannot be read"):
        read_json_object(tmp_path / "loop")


def test_a_pipe_is_refused_and_does_not_hang(tmp_path: Path) -> None:
    assert isinstance(error_from_pipe(read_json_object, tmp_path / "pipe"), InklingError)
