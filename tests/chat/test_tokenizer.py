import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inkling_runtime.adapter.model_spec import parse_model_spec
from inkling_runtime.chat.tokenizer import (
    FileTokenizer,
    InklingTokenizer,
    TextStream,
    find_tokenizer,
)
from inkling_runtime.errors import InklingError

INKLING = InklingTokenizer()


def spec(vocab_size, unpadded):
    return parse_model_spec(
        {
            "model_type": "inkling_model",
            "hidden_size": 8,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 6,
            "vocab_size": vocab_size,
            "unpadded_vocab_size": unpadded,
        }
    )


def write_word_tokenizer(folder, words):
    vocab = {word: index for index, word in enumerate([*words, "<unk>"])}
    model = {"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": model,
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=40))
def test_a_stream_gives_the_text_of_its_tokens(text):
    ids = INKLING.encode(text)
    stream = TextStream(INKLING)
    pieces = [stream.add(token_id) for token_id in ids]
    assert "".join(pieces) + stream.finish() == text == INKLING.decode(ids)
    assert all("�" not in piece for piece in pieces) or "�" in text


def test_a_stream_keeps_spaces_between_words(tmp_path):
    write_word_tokenizer(tmp_path, ["7", "8", "9"])
    tokenizer = FileTokenizer(tmp_path / "tokenizer.json")
    stream = TextStream(tokenizer)
    assert [stream.add(token_id) for token_id in tokenizer.encode("7 8 9")] == ["7", " 8", " 9"]
    assert stream.finish() == ""


def test_a_character_that_is_cut_off_is_given_out_at_the_end():
    ids = INKLING.encode("🏴‍☠️")
    assert len(ids) > 1
    stream = TextStream(INKLING)
    assert stream.add(ids[0]) == ""
    assert "�" in stream.finish()


def test_markup_of_special_tokens_stays_text():
    ids = INKLING.encode("<|message_user|>")
    assert all(token_id < 199998 for token_id in ids)
    assert INKLING.decode(ids) == "<|message_user|>"


def test_the_models_own_file_comes_first(tmp_path):
    write_word_tokenizer(tmp_path, ["a"])
    tokenizer = find_tokenizer(tmp_path, spec(201024, 200058))
    assert isinstance(tokenizer, FileTokenizer)


def test_inklings_vocabulary_needs_no_file(tmp_path):
    assert isinstance(find_tokenizer(tmp_path, spec(201024, 200058)), InklingTokenizer)


def test_another_vocabulary_without_a_file_has_token_ids_only(tmp_path):
    assert find_tokenizer(tmp_path, spec(192, 180)) is None


def test_a_broken_file_is_named(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InklingError, match="is not a tokenizer file"):
        find_tokenizer(tmp_path, spec(192, 180))
