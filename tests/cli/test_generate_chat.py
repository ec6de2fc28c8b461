"""Chat prompts on a tiny model with Inkling's vocabulary and random weights."""

import json

import pytest

from inkling_cli.main import main
from inkling_runtime.chat.prompt import render_chat
from runtime.tiny_models import make_text_model, save


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    sizes = {"vocab_size": 201024, "unpadded_vocab_size": 200058, "hidden_size": 8}
    return save(make_text_model(**sizes), tmp_path_factory.mktemp("model"))


def generate(model, capsys, *words):
    code = main(["generate", str(model), *words, "--max-tokens", "5", "--output-format", "json"])
    shown = capsys.readouterr()
    return int(code), json.loads(shown.out)["completions"] if shown.out else shown.err


def test_a_chat_prompt_is_rendered_with_its_effort(model, capsys):
    user = {"role": "user", "content": "Hello"}
    code, (completion,) = generate(model, capsys, "--chat", "Hello", "--effort", "low")
    assert code == 0
    assert completion["prompt_ids"] == render_chat([user], 0.2)
    assert len(completion["token_ids"]) == 5
    code, (completion,) = generate(model, capsys, "--chat", "Hello", "--system", "Be brief.")
    system = {"role": "system", "content": "Be brief."}
    assert completion["prompt_ids"] == render_chat([system, user], 0.9)


def test_messages_come_from_a_file(model, capsys, tmp_path):
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}]
    (tmp_path / "m.json").write_text(json.dumps([*messages, messages[0]]))
    code, (completion,) = generate(model, capsys, "--messages", str(tmp_path / "m.json"))
    assert code == 0
    assert completion["prompt_ids"] == render_chat([*messages, messages[0]], 0.9)


def test_a_text_prompt_needs_no_tokenizer_file(model, capsys):
    code, (completion,) = generate(model, capsys, "--prompt", "Hello")
    assert code == 0
    assert completion["prompt_ids"] == [13225]


def test_an_unknown_effort_is_refused(model, capsys):
    code, message = generate(model, capsys, "--chat", "Hello", "--effort", "extreme")
    assert code == 2
    assert "the effort is `extreme`, expected none, minimal, low" in message
