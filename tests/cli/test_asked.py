from pathlib import Path

import pytest

from factories import TINY, raw_config, write_released_adapter
from inkling_cli.generation.asked import (
    Prompt,
    Run,
    pair_up,
    parse_adapters,
    parse_prompts,
    plan_adapter,
)
from inkling_runtime.adapter.model_spec import parse_model_spec
from inkling_runtime.errors import InklingError

SPEC = parse_model_spec(raw_config())
ONE, TWO = Prompt("one", text="one"), Prompt("two", text="two")


def parse(texts=(), chats=(), system=None, messages=None, ids=()):
    return parse_prompts(texts, chats, system, messages, ids)


def test_an_adapter_without_a_name_has_its_folders():
    assert parse_adapters(["x/count-down", "b=y"]) == {
        "count-down": Path("x/count-down"),
        "b": Path("y"),
    }


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a/x", "b/x"], "two adapters have the name `x`"),
        (["base=x"], "names no adapter"),
        (["=x"], "names no adapter"),
        (["x="], "names no adapter"),
    ],
)
def test_names_that_cannot_be_used_are_refused(texts, message):
    with pytest.raises(InklingError, match=message):
        parse_adapters(texts)


def test_without_a_choice_every_prompt_runs_with_every_adapter():
    assert pair_up([ONE, TWO], ["a", "b"], []) == [
        Run(ONE, "a"),
        Run(ONE, "b"),
        Run(TWO, "a"),
        Run(TWO, "b"),
    ]
    assert pair_up([ONE], [], []) == [Run(ONE, None)]


def test_a_choice_holds_for_all_or_for_each():
    assert pair_up([ONE, TWO], ["a"], ["base"]) == [Run(ONE, None), Run(TWO, None)]
    assert pair_up([ONE, TWO], ["a"], ["base", "a"]) == [Run(ONE, None), Run(TWO, "a")]


@pytest.mark.parametrize(
    ("chosen", "message"),
    [(["c"], "`--adapter c` is not loaded, expected one of `a`, `base`"), (["a"] * 3, "are 3")],
)
def test_a_choice_that_does_not_fit_is_refused(chosen, message):
    with pytest.raises(InklingError, match=message):
        pair_up([ONE, TWO], ["a"], chosen)


def test_prompts_come_in_order(tmp_path):
    (tmp_path / "m.json").write_text('[{"role": "user", "content": "m"}]')
    prompts = parse(["t"], ["c"], "s", tmp_path / "m.json", ["3,4 5"])
    assert [prompt.text for prompt in prompts] == ["t", None, None, None]
    assert prompts[1].messages == (
        {"role": "system", "content": "s"},
        {"role": "user", "content": "c"},
    )
    assert prompts[2].messages == ({"role": "user", "content": "m"},)
    assert prompts[3].ids == (3, 4, 5)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "there is no prompt"),
        ({"ids": ["3,x"]}, "is not a list of token ids"),
        ({"ids": ["-1"]}, "is not a list of token ids"),
        ({"texts": ["t"], "system": "s"}, "`--system` needs a `--chat`"),
    ],
)
def test_prompts_that_cannot_be_understood_are_refused(asked, message):
    with pytest.raises(InklingError, match=message):
        parse(**asked)


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot be read"), ("[", "is not JSON"), ('{"role": "user"}', "a list of messages")],
)
def test_a_messages_file_that_is_no_list_is_refused(tmp_path, content, message):
    path = tmp_path / "m.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InklingError, match=message):
        parse(messages=path)


def test_an_adapter_that_fits_is_applied_whole(tmp_path):
    plan = plan_adapter("a", write_released_adapter(tmp_path / "a"), SPEC, None, False)
    assert len(plan.applied) == len(SPEC.sites())
    assert plan.findings == ()


def unknown_name(tensors):
    for letter in "AB":
        tensors[f"language_model.layers.1.attn.wo_du.lora_{letter}.weight"] = tensors.pop(
            f"language_model.layers.1.attn.wo_ud.lora_{letter}.weight"
        )


def test_an_adapter_of_which_a_part_would_be_dropped_is_refused(tmp_path):
    folder = write_released_adapter(tmp_path / "a", edit=unknown_name)
    with pytest.raises(InklingError, match="would not be applied: 2 of 82 tensors") as caught:
        plan_adapter("a", folder, SPEC, None, False)
    assert "--allow-partial" in caught.value.hint


def test_the_rest_is_applied_where_that_is_allowed(tmp_path):
    folder = write_released_adapter(tmp_path / "a", edit=unknown_name)
    plan = plan_adapter("a", folder, SPEC, None, True)
    assert len(plan.applied) == len(SPEC.sites()) - 1
    assert [finding.code for finding in plan.findings] == ["ADP001"]


def test_an_adapter_without_any_part_that_fits_is_refused(tmp_path):
    other = parse_model_spec(raw_config(hidden_size=TINY.hidden + 8))
    folder = write_released_adapter(tmp_path / "a")
    with pytest.raises(InklingError, match="no part of"):
        plan_adapter("a", folder, other, None, True)
