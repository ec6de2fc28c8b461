"""Reading an adapter: nothing is dropped, and what has no meaning is named."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import forms
import pytest
import torch
from conversion import factors_of, plan, spec_of
from hostile.pipes import error_from_pipe

from factories import (
    INKLING,
    INKLING_SMALL,
    TINY,
    Module,
    released_adapter_config,
    released_modules,
    write_adapter,
    write_json,
    write_released_adapter,
    write_sparse_adapter,
)
from inkling_runtime.adapter.adapter import read_adapter, require_understood
from inkling_runtime.errors import InklingError

Tensors = dict[str, torch.Tensor]
SPEC = spec_of(TINY)
Q = "language_model.layers.1.attn.wq_du"
W1 = "language_model.layers.1.mlp.experts.w1"


def test_a_released_adapter_is_understood_completely(tmp_path: Path) -> None:
    adapter = read_adapter(write_released_adapter(tmp_path))
    require_understood(adapter)
    assert adapter.dialect.name == "tinker"
    assert (adapter.unknown, adapter.problems, adapter.base_copies) == ((), (), ())
    assert len(adapter.modules) == len(released_modules(TINY))
    assert adapter.dtypes == ("BF16",)
    assert {module.scaling for module in adapter.modules} == {4.0}
    total = sum(a[-1] * a[-2] for m in released_modules(TINY) for a in m.shapes(2) if len(a) == 2)
    assert adapter.num_parameters > total


def test_modules_come_in_the_order_of_sites_and_experts(tmp_path: Path) -> None:
    modules = forms.cookbook_modules(replace(TINY, experts=12))
    adapter = read_adapter(write_adapter(tmp_path, modules, released_adapter_config()))
    numbers = [m.parsed.expert for m in adapter.modules if m.name.endswith("gate_proj")]
    assert numbers[:12] == list(range(12))
    assert [m.sites for m in adapter.modules] == sorted(m.sites for m in adapter.modules)


def rename(old: str, new: str) -> Callable[[Tensors], None]:
    def edit(tensors: Tensors) -> None:
        for name in [name for name in tensors if old in name]:
            tensors[name.replace(old, new)] = tensors.pop(name)

    return edit


def drop(part: str) -> Callable[[Tensors], None]:
    def edit(tensors: Tensors) -> None:
        for name in [name for name in tensors if part in name]:
            del tensors[name]

    return edit


def put(name: str, *shape: int, dtype: torch.dtype = torch.bfloat16) -> Callable[[Tensors], None]:
    def edit(tensors: Tensors) -> None:
        tensors[name] = torch.zeros(shape, dtype=dtype)

    return edit


def copy(old: str, new: str) -> Callable[[Tensors], None]:
    def edit(tensors: Tensors) -> None:
        for name in [name for name in tensors if old in name]:
            tensors[name.replace(old, new)] = tensors[name].clone()

    return edit


PROBLEMS: dict[str, tuple[Callable[[Tensors], None], str]] = {
    "A missing": (drop(f"{Q}.lora_A"), f"module `{Q}` of `"),
    "B missing": (drop(f"{Q}.lora_B"), "it has lora_A but no lora_B"),
    "three dimensions for a matrix": (put(f"{Q}.lora_A.weight", 1, 2, 40), "has 3 dimensions, ex"),
    "one dimension": (put(f"{Q}.lora_B.weight", 96), "has 1 dimensions, expected 2"),
    "two dimensions for a stack": (put(f"{W1}.lora_B.weight", 11, 2), "has 2 dimensions, expected"),
    "ranks of A and B differ": (put(f"{Q}.lora_A.weight", 3, 40), "their ranks 3 and 2 differ"),
    "transposed": (put(f"{Q}.lora_A.weight", 40, 2), "their ranks 40 and 2 differ"),
    "numbers of experts differ": (put(f"{W1}.lora_A.weight", 4, 2, 40), "numbers of experts dif"),
    "an empty factor": (put(f"{Q}.lora_A.weight", 2, 0), "empty"),
    "integers": (put(f"{Q}.lora_A.weight", 2, 40, dtype=torch.int8), "has dtype I8, expected a fl"),
    "both prefixes": (copy(Q, f"base_model.model.{Q}"), "it adapts the same weights as"),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_module_without_meaning_is_a_problem(tmp_path: Path, name: str) -> None:
    edit, message = PROBLEMS[name]
    adapter = read_adapter(write_released_adapter(tmp_path, edit=edit))
    assert adapter.problems
    with pytest.raises(InklingError) as caught:
        require_understood(adapter)
    assert message in caught.value.message
    assert "inkling inspect" in (caught.value.hint or "")


def test_a_rank_that_the_config_does_not_give_is_a_problem(tmp_path: Path) -> None:
    modules = released_modules(TINY, {"attention"})
    config = released_adapter_config(rank_pattern={"wq_du": 3})
    adapter = read_adapter(write_adapter(tmp_path, modules, config))
    assert {p.module.rpartition(".")[2] for p in adapter.problems} == {"wq_du"}
    assert "rank 2, the config says 3" in adapter.problems[0].message


def test_one_site_stored_stacked_and_one_by_one_is_a_problem(tmp_path: Path) -> None:
    stacked = released_modules(TINY, {"routed"}, [1])
    modules = stacked + forms.numbered(stacked, TINY)
    source = write_adapter(tmp_path, modules, released_adapter_config())
    assert {p.kind for p in read_adapter(source).problems} == {"twice"}
    with pytest.raises(InklingError, match="it adapts the same weights as"):
        plan(source, "tinker", SPEC)


UNKNOWN: dict[str, Callable[[Tensors], None]] = {
    "a typo": rename("wo_ud", "wo_du"),
    "a router": put("language_model.layers.1.mlp.gate.lora_A.weight", 2, 40),
    "an embedding": put("language_model.embed_tokens.lora_A.weight", 2, 64),
    "PEFT's own suffix": rename("wq_du.lora_A.weight", "wq_du.lora_A.default.weight"),
    "a magnitude": put("language_model.layers.1.attn.wq_du.lora_magnitude_vector", 48),
    "a bias": put("language_model.layers.1.attn.wq_du.lora_B.bias", 48),
    "a full weight": put("language_model.lm_head.weight", 64, 40),
    "a draft layer": put("model.mtp.layers.0.attn.wq_du.lora_A.weight", 2, 40),
    "one prefix too many": rename("language_model.", "model.model.language_model."),
    "a layer with a sign": rename("layers.1.", "layers.-1."),
    "a layer with a leading zero": rename("layers.1.", "layers.01."),
    "a layer in other digits": rename("layers.1.", "layers.1\u0663."),
    "a placeholder for a layer": rename("layers.1.", "layers.{layer}."),
    "a placeholder for an expert": put(
        "language_model.layers.1.mlp.experts.{expert}.gate_proj.lora_A.weight", 2, 40
    ),
    "shared experts under both names": copy(".shared_experts.", ".sink_experts."),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_name_that_no_one_writes_is_unknown_and_stops_a_conversion(
    tmp_path: Path, name: str
) -> None:
    source = write_released_adapter(tmp_path, edit=UNKNOWN[name])
    adapter = read_adapter(source)
    assert adapter.unknown
    with pytest.raises(InklingError, match="have names that the dialect `tinker` does not have"):
        plan(source, "vllm", SPEC)


def test_every_tensor_is_in_exactly_one_place(tmp_path: Path) -> None:
    def edit(tensors: Tensors) -> None:
        for one in UNKNOWN.values():
            one(tensors)
        put("language_model.lm_head.base_layer.weight", 64, 40)(tensors)

    adapter = read_adapter(write_released_adapter(tmp_path, edit=edit))
    known = [tensor.name for tensor in adapter.factor_tensors()]
    everything = known + list(adapter.unknown) + list(adapter.base_copies)
    assert sorted(everything) == sorted(adapter.file.tensors)


def test_an_adapter_without_factors_is_refused(tmp_path: Path) -> None:
    source = write_released_adapter(tmp_path, edit=lambda tensors: tensors.clear())
    with pytest.raises(InklingError, match="holds no LoRA factors"):
        plan(source, "vllm", SPEC)


@pytest.mark.parametrize("spec", [SPEC, None], ids=["with model", "without model"])
def test_a_missing_expert_is_refused(tmp_path: Path, spec: object) -> None:
    modules = forms.cookbook_modules(TINY, {"routed"})
    kept = [m for m in modules if ".2.mlp.experts.3.up_proj" not in m.name]
    source = write_adapter(tmp_path, kept, released_adapter_config())
    with pytest.raises(InklingError) as caught:
        plan(source, "tinker", spec)
    assert "4 of 5 experts of `layers.2.mlp.experts.w3`" in caught.value.message
    assert "expert 3" in caught.value.message


def test_an_expert_too_many_is_refused(tmp_path: Path) -> None:
    modules = forms.cookbook_modules(replace(TINY, experts=6), {"routed"})
    source = write_adapter(tmp_path, modules, released_adapter_config())
    with pytest.raises(InklingError, match="holds 6 of 5 experts"):
        plan(source, "tinker", SPEC)


def test_experts_of_unlike_dtype_or_rank_are_refused(tmp_path: Path) -> None:
    modules = forms.cookbook_modules(TINY, {"routed"})
    for letter in "AB":

        def widen(tensors: Tensors, letter: str = letter) -> None:
            name = f"base_model.model.language_model.layers.1.mlp.experts.1.gate_proj.lora_{letter}"
            tensors[f"{name}.weight"] = tensors[f"{name}.weight"].float()

        source = write_adapter(tmp_path / letter, modules, released_adapter_config(), edit=widen)
        with pytest.raises(InklingError, match="differ in shape, dtype or scaling"):
            plan(source, "tinker", SPEC)
    config = released_adapter_config(alpha_pattern={r".*experts\.1\.gate_proj": 1})
    source = write_adapter(tmp_path / "alpha", modules, config)
    with pytest.raises(InklingError, match="differ in shape, dtype or scaling"):
        plan(source, "tinker", SPEC)


def test_fused_attention_needs_the_models_widths(tmp_path: Path) -> None:
    modules = forms.sglang_modules(TINY, {"attention"}, attention="qkvr")
    source = write_adapter(tmp_path, modules, forms.sglang_config(2, 8))
    with pytest.raises(InklingError) as caught:
        plan(source, "tinker", None)
    assert "fuses q, k, v and r" in caught.value.message
    assert "--model" in (caught.value.hint or "")
    wrong = spec_of(replace(TINY, d_rel=6))
    with pytest.raises(InklingError, match="the model's q, k, v and r need"):
        plan(source, "tinker", wrong)


def test_a_small_adapter_does_not_fit_inkling(tmp_path: Path) -> None:
    modules = released_modules(INKLING_SMALL, layers=[0, 2, 5])
    source = write_sparse_adapter(tmp_path, modules, released_adapter_config(8, 8))
    with pytest.raises(InklingError) as caught:
        plan(source, "tinker", spec_of(INKLING))
    assert "does not fit the base model" in caught.value.message
    assert "4096" in caught.value.message
    assert "6144" in caught.value.message
    assert caught.value.hint == "the adapter's widths are those of Inkling-Small"


MISFITS: dict[str, tuple[list[Module], str]] = {
    "a layer beyond the last": (
        released_modules(replace(TINY, layers=6), {"attention"}, [5]),
        "adapts `layers.5.attn.wk_dv`, which the base model does not have",
    ),
    "dense factors on an expert layer": (
        released_modules(replace(TINY, num_dense=2), {"dense"}, [1]),
        "adapts `layers.1.mlp.down`, which the base model does not have",
    ),
    "sliding and global widths swapped": (
        released_modules(replace(TINY, local=(1, 3)), {"attention"}, [0]),
        "B gives 12 features, the base model takes 24",
    ),
    "another number of experts": (
        released_modules(replace(TINY, experts=4), {"routed"}),
        "it holds 4 experts, the base model has 5",
    ),
    "another number of shared experts": (
        released_modules(replace(TINY, shared=2), {"shared"}),
        "B gives 22 features, the base model takes 33",
    ),
    "a head between both vocabularies": (
        released_modules(replace(TINY, unpadded=61), {"head"}),
        "B gives 61 features, the base model takes 60 or 64",
    ),
}


@pytest.mark.parametrize("name", MISFITS)
def test_an_adapter_that_does_not_fit_is_not_converted(tmp_path: Path, name: str) -> None:
    modules, message = MISFITS[name]
    source = write_adapter(tmp_path, modules, released_adapter_config())
    for target in ("tinker", "vllm", "sglang", "peft"):
        with pytest.raises(InklingError) as caught:
            plan(source, target, SPEC)
        assert message in caught.value.message


def test_what_is_not_an_adapter_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InklingError, match="does not exist"):
        read_adapter(tmp_path / "absent")
    with pytest.raises(InklingError, match=r"holds no `adapter_model.safetensors`"):
        read_adapter(tmp_path)
    source = write_released_adapter(tmp_path / "adapter")
    with pytest.raises(InklingError, match="is a file, expected the adapter's folder"):
        read_adapter(source / "adapter_model.safetensors")
    with pytest.raises(InklingError, match="`other` is not a dialect, expected one of `tinker`"):
        read_adapter(source, "other")
    (source / "adapter_config.json").unlink()
    with pytest.raises(InklingError, match=r"adapter_config.json` does not exist"):
        read_adapter(source)


def test_a_name_that_no_file_system_takes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InklingError):
        read_adapter(tmp_path / ("x" * 300))


def test_pickled_weights_are_not_loaded(tmp_path: Path) -> None:
    (tmp_path / "adapter_model.bin").write_bytes(b"x")
    with pytest.raises(InklingError, match=r"holds `adapter_model.bin` but no") as caught:
        read_adapter(tmp_path)
    assert "pickled weights run code" in (caught.value.hint or "")


def test_weights_that_are_a_pipe_or_a_folder_are_refused(tmp_path: Path) -> None:
    write_json(tmp_path / "a" / "adapter_config.json", released_adapter_config())
    (tmp_path / "a" / "adapter_model.safetensors").mkdir()
    with pytest.raises(InklingError, match="cannot be read"):
        read_adapter(tmp_path / "a")
    write_json(tmp_path / "b" / "adapter_config.json", released_adapter_config())
    pipe = tmp_path / "b" / "adapter_model.safetensors"
    assert isinstance(error_from_pipe(lambda _: read_adapter(tmp_path / "b"), pipe), InklingError)


def test_thousands_of_tensors_are_read_in_seconds(tmp_path: Path) -> None:
    small = replace(INKLING_SMALL, layers=12)
    modules = forms.cookbook_modules(small)
    source = write_sparse_adapter(tmp_path, modules, released_adapter_config(8, 8))
    start = time.process_time()
    adapter = read_adapter(source)
    require_understood(adapter)
    assert len(adapter.file.tensors) > 15_000
    assert time.process_time() - start < 3


def test_factors_of_an_unsound_adapter_are_not_loaded(tmp_path: Path) -> None:
    adapter = read_adapter(write_released_adapter(tmp_path, edit=drop(f"{Q}.lora_A")))
    with pytest.raises(InklingError):
        factors_of(adapter, SPEC)
