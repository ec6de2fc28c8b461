"""What can be compared and what cannot, and what is told of names and configs."""

from pathlib import Path

import forms
import pytest
import torch
from conversion import convert, spec_of
from differences import QUERY, SPEC, Tensors, add_to, apart, compare

from factories import TINY, Sizes, write_adapter, write_released_adapter
from inkling_runtime.adapter.adapter import read_adapter
from inkling_runtime.adapter.comparison import plan_comparison
from inkling_runtime.adapter.difference import ConfigDifference, compare_configs
from inkling_runtime.adapter.distance import measure_difference
from inkling_runtime.adapter.lora_config import parse_lora_config
from inkling_runtime.errors import InklingError


def refusal(first: Path, second: Path, spec=None) -> InklingError:
    with pytest.raises(InklingError) as caught:
        compare(first, second, spec)
    return caught.value


class TestRefusals:
    def test_adapters_for_models_of_other_widths(self, tmp_path):
        first = write_released_adapter(tmp_path / "first")
        second = write_released_adapter(tmp_path / "second", Sizes(hidden=32))
        error = refusal(first, second)
        assert error.message == (
            f"`lm_head` maps 40 to 60 features in `{first}` and 32 to 60 features in `{second}`, "
            "expected the same widths"
        )
        assert error.hint == "the two are made for base models of other sizes"

    def test_adapters_for_released_models_of_other_sizes_are_named(self, tmp_path):
        folders = [
            write_released_adapter(tmp_path / str(hidden), Sizes(hidden=hidden), groups={"head"})
            for hidden in (4096, 6144)
        ]
        assert refusal(*folders).hint == (
            f"`{folders[0]}`: the adapter's widths are those of Inkling-Small; "
            f"`{folders[1]}`: the adapter's widths are those of Inkling"
        )

    def test_adapters_for_models_with_other_numbers_of_experts(self, tmp_path):
        folders = [
            write_released_adapter(tmp_path / str(n), Sizes(experts=n), groups={"routed"})
            for n in (5, 4)
        ]
        assert "holds 5 experts in" in refusal(*folders).message

    def test_flat_experts_that_a_stack_does_not_divide(self, tmp_path):
        flat = write_released_adapter(tmp_path / "flat", groups={"shared"})
        other = Sizes(shared=2)
        source = write_released_adapter(tmp_path / "source", other, groups={"shared"})
        convert(source, "peft", tmp_path / "stack", spec_of(other))
        assert "expected the same widths" in refusal(flat, tmp_path / "stack").message

    def test_one_that_does_not_fit_the_model(self, tmp_path):
        adapter = write_released_adapter(tmp_path / "adapter", Sizes(hidden=32))
        error = refusal(adapter, adapter, SPEC)
        assert "does not fit the base model" in error.message

    def test_one_that_is_not_sound(self, tmp_path):
        def drop(tensors: Tensors) -> None:
            del tensors[f"{QUERY}.lora_A.weight"]

        sound = write_released_adapter(tmp_path / "sound")
        torn = write_released_adapter(tmp_path / "torn", edit=drop)
        for folders in ((sound, torn), (torn, sound)):
            assert f"module `{QUERY}` of `{torn}`" in refusal(*folders).message

    def test_one_that_is_more_than_plain_lora(self, tmp_path):
        plain = write_released_adapter(tmp_path / "plain")
        more = write_released_adapter(tmp_path / "more", config={"use_dora": True})
        assert refusal(plain, more).message.startswith(f"`{more}` has use_dora True")

    def test_fused_attention_without_a_model(self, tmp_path):
        modules = forms.sglang_modules(TINY, {"attention"}, attention="qkvr")
        fused = write_adapter(tmp_path / "fused", modules, forms.sglang_config(2, 8))
        assert "come from the base model" in refusal(fused, fused).message
        assert not apart(compare(fused, fused, SPEC))


def test_progress_ends_at_the_bytes_that_were_announced(tmp_path):
    first = read_adapter(write_released_adapter(tmp_path / "first"))
    second = read_adapter(write_released_adapter(tmp_path / "second", groups={"routed"}))
    comparison, done = plan_comparison(first, second, SPEC), []
    measure_difference(comparison, done.append)
    assert len(done) == len(comparison.sites)
    assert sum(done) == comparison.nbytes


def test_names_are_compared_as_they_are_on_disk(tmp_path):
    first = write_released_adapter(tmp_path / "first")
    convert(first, "vllm", tmp_path / "second", SPEC)
    names = compare(first, tmp_path / "second").names
    assert names.num_common + len(names.only_first) == len(read_adapter(first).modules)
    assert all(".shared_experts." in name for name in names.only_first)
    assert all(".sink_experts." in name for name in names.only_second)


BASE = {"r": 2, "lora_alpha": 8, "target_modules": ["a", "b"]}


class TestConfigs:
    @pytest.mark.parametrize(
        "change",
        [
            {"target_modules": ["b", "a"]},
            {"use_rslora": False},
            {"rank_pattern": {}},
            {"alpha_pattern": None},
            {"revision": None},
            {"lora_alpha": 8.0},
        ],
        ids=str,
    )
    def test_spellings_of_one_meaning_are_no_difference(self, change):
        configs = parse_lora_config(BASE), parse_lora_config(BASE | change)
        assert compare_configs(*configs) == ()
        assert compare_configs(*configs[::-1]) == ()

    def test_keys_that_decide_a_delta_come_first(self):
        change = {"base_model_name_or_path": "x", "r": 4, "use_rslora": True}
        assert compare_configs(parse_lora_config(BASE), parse_lora_config(BASE | change)) == (
            ConfigDifference("r", 2, 4, True),
            ConfigDifference("use_rslora", None, True, True),
            ConfigDifference("base_model_name_or_path", None, "x", False),
        )

    def test_alone_they_put_no_module_apart(self, tmp_path):
        first = write_released_adapter(tmp_path / "first")
        second = write_released_adapter(tmp_path / "second", config={"rank_pattern": {"x": 9}})
        difference = compare(first, second)
        assert [key.key for key in difference.config] == ["rank_pattern"]
        assert difference.beyond(0.0) == ()


@pytest.mark.parametrize(("tolerance", "count"), [(0.0, 1), (1e-3, 1), (0.1, 0)])
def test_modules_within_the_tolerance_are_no_difference(tmp_path, tolerance, count):
    first = write_released_adapter(tmp_path / "first")
    edit = add_to(f"{QUERY}.lora_B.weight", (0, 0), 1)
    second = write_released_adapter(tmp_path / "second", edit=edit)
    assert len(compare(first, second).beyond(tolerance)) == count


def test_a_base_weight_beside_the_factors_is_no_module(tmp_path):
    def add(tensors: Tensors) -> None:
        tensors["lm_head.base_layer.weight"] = torch.ones(TINY.vocab, TINY.hidden)

    first = write_released_adapter(tmp_path / "first")
    second = write_released_adapter(tmp_path / "second", edit=add)
    difference = compare(first, second)
    assert difference.beyond(0.0) == ()
    assert difference.second.base_copies == ("lm_head.base_layer.weight",)
