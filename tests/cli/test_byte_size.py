"""Sizes on the command line: a number and a unit, decimal or binary."""

import pytest

from inkling_cli.byte_size import parse_size
from inkling_runtime.errors import InklingError


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("2GB", 2 * 10**9),
        ("500MB", 500 * 10**6),
        ("2GiB", 2 << 30),
        ("2G", 2 << 30),
        ("1.5gib", 3 << 29),
        ("10 kb", 10**4),
        ("1KiB", 1 << 10),
        ("1TB", 10**12),
        ("7B", 7),
        ("1tib", 1 << 40),
    ],
)
def test_units_are_decimal_or_binary(text, nbytes):
    assert parse_size(text, "--shard-size", "2GB") == nbytes


@pytest.mark.parametrize("text", ["2", "", "GB", "-2GB", "0GB", "0.1B", "2XB", "1e9GB", "2GB2"])
def test_what_is_no_size_is_refused_with_the_option_and_examples(text):
    with pytest.raises(InklingError) as caught:
        parse_size(text, "--shard-size", "2GB", "500MB")
    assert caught.value.message.startswith(f"`--shard-size {text}` is not a size")
    assert caught.value.hint == "for example `--shard-size 2GB` or `--shard-size 500MB`"
