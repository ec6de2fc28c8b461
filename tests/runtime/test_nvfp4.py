"""NVFP4 weights stand for the numbers that the format says, and a model in NVFP4 computes as the
same model with these numbers unpacked, in both spellings and both layouts."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from nvfp4_files import SPELLINGS, quantise, write_nvfp4
from op_cases import CPU, TOLERANCES, assert_close, gated, randn
from safetensors.torch import load_file, save_file
from tiny_models import make_multimodal_model, make_text_model, random_ids, relative_error, save
from torch import Tensor

from inkling_runtime.adapter.model_spec import read_model_spec
from inkling_runtime.errors import InklingError
from inkling_runtime.llm import LLM
from inkling_runtime.model.checkpoint import Checkpoint, load_checkpoint
from inkling_runtime.ops.backend import Backend, use_backend
from inkling_runtime.ops.nvfp4 import Nvfp4Weight, nvfp4_reference
from inkling_runtime.ops.routed_experts import routed_experts, routed_experts_reference
from inkling_runtime.ops.token_adapters import TokenAdapters

SIZES = {"hidden_size": 48, "moe_intermediate_size": 32}
"""Multiples of the block; other numbers than all others of the tiny models."""
Edit = Callable[[dict[str, Tensor]], object]


def random_weight(experts: int, rows: int, columns: int) -> Nvfp4Weight:
    generator = torch.Generator().manual_seed(experts + rows + columns)
    packed = torch.randint(256, (experts, rows, columns // 2), generator=generator)
    scales = torch.rand(experts, rows, columns // 16, generator=generator) * 300
    scales2 = torch.rand(experts, generator=generator) * 0.01
    return Nvfp4Weight(packed.to(torch.uint8), scales.to(torch.float8_e4m3fn), scales2)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same sizes in both layouts."""
    multimodal = make_multimodal_model(**SIZES)
    return {
        "raw": save(multimodal, tmp_path_factory.mktemp("raw")),
        "transformers": save(make_text_model(**SIZES), tmp_path_factory.mktemp("text")),
    }


@pytest.fixture
def edited(folders: dict[str, Path], tmp_path: Path) -> Callable[[str, Edit], Path]:
    """Return a function that writes a raw NVFP4 checkpoint with its tensors changed."""

    def edit(spelling: str, change: Edit) -> Path:
        write_nvfp4(folders["raw"], spelling, tmp_path / "packed", tmp_path / "plain")
        tensors = load_file(tmp_path / "packed" / "model.safetensors")
        change(tensors)
        save_file(tensors, tmp_path / "packed" / "model.safetensors")
        return tmp_path / "packed"

    return edit


def load(folder: Path, dtype: torch.dtype = torch.float32) -> Checkpoint:
    return load_checkpoint(folder, read_model_spec(folder), CPU, dtype)


def assert_refused(folder: Path, message: str, hint: str | None = None) -> None:
    with pytest.raises(InklingError) as caught:
        load(folder)
    assert caught.value.message == message.replace("FOLDER", str(folder))
    assert caught.value.hint == hint


def test_every_byte_and_scale_stands_for_what_its_bits_say() -> None:
    packed = torch.arange(256, dtype=torch.uint8).view(1, 2, 128)
    bytes_ = torch.arange(16, dtype=torch.uint8).view(1, 2, 8) * 7 + 1
    scales = bytes_.repeat_interleave(2, -1).view(torch.float8_e4m3fn)
    weight = Nvfp4Weight(packed, scales, torch.tensor([0.37]))
    want = nvfp4_reference(weight)
    assert want.shape == weight.shape == (1, 2, 256)
    assert_close(weight.dequantize(slice(None), torch.float32), want)
    assert want[0, 0, 2].item() == pytest.approx(0.5 * scales[0, 0, 0].float().item() * 0.37)


def test_experts_are_taken_by_any_index() -> None:
    weight = random_weight(5, 3, 32)
    all_experts = weight.dequantize(slice(None), torch.float32)
    assert torch.equal(weight.dequantize(3, torch.float32), all_experts[3])
    index = torch.tensor([4, 0, 4])
    assert torch.equal(weight.dequantize(index, torch.float32), all_experts[index])
    assert torch.equal(weight.dequantize([2], torch.bfloat16), all_experts[2:3].bfloat16())


def test_the_quantiser_of_these_tests_loses_little() -> None:
    weight = randn(3, 6, 64)
    back = nvfp4_reference(quantise(weight))
    assert 0.05 < ((back - weight).norm() / weight.norm()).item() < 0.12


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("tokens", [1, 7])
def test_packed_experts_give_what_unpacked_ones_give(tokens: int, dtype: torch.dtype) -> None:
    hidden, width, experts = 48, 32, 6
    w13, w2 = random_weight(experts, 2 * width, hidden), random_weight(experts, hidden, width)
    ids = randn(tokens, experts, seed=5).topk(2).indices
    x, weights = randn(tokens, hidden, dtype=dtype), randn(tokens, 2, seed=6).softmax(-1)
    adapters = TokenAdapters.from_ids([(t % 4) - 1 for t in range(tokens)], CPU)
    rest = (ids, weights, gated(hidden, width, experts, dtype), adapters)
    with use_backend(Backend.TORCH):
        got, pending = routed_experts(x, w13, w2, *rest)
    plain = (w.dequantize(slice(None), dtype) for w in (w13, w2))
    assert pending is None
    assert_close(got, routed_experts_reference(x, *plain, *rest))


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("layout", ["raw", "transformers"])
def test_a_model_in_nvfp4_computes_as_with_unpacked_weights(
    folders: dict[str, Path], layout: str, spelling: str, tmp_path: Path
) -> None:
    write_nvfp4(folders[layout], spelling, tmp_path / "packed", tmp_path / "plain")
    packed, plain = (LLM(tmp_path / name, device="cpu") for name in ("packed", "plain"))
    ids = random_ids(23)
    assert relative_error(packed.logits(ids), plain.logits(ids)) < 2e-6
    original = LLM(folders[layout], device="cpu")
    assert relative_error(packed.logits(ids), original.logits(ids)) > 1e-3


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("layout", ["raw", "transformers"])
def test_experts_stay_packed_with_gate_rows_above_up_rows(
    folders: dict[str, Path], layout: str, spelling: str, tmp_path: Path
) -> None:
    write_nvfp4(folders[layout], spelling, tmp_path / "packed", tmp_path / "plain")
    packed, plain = load(tmp_path / "packed").weights, load(tmp_path / "plain").weights
    assert packed.keys() == plain.keys()
    quantised = [name for name, weight in packed.items() if isinstance(weight, Nvfp4Weight)]
    assert quantised == [f"layers.{i}.mlp.experts.{w}" for i in (2, 3, 4) for w in ("w13", "w2")]
    for name in quantised:
        assert packed[name].nbytes < plain[name].nbytes / 6
        torch.testing.assert_close(
            packed[name].dequantize(slice(None), torch.float32), plain[name], rtol=3e-7, atol=0
        )


def test_layers_may_be_quantised_or_not(edited: Callable[[str, Edit], Path]) -> None:
    name = "model.llm.layers.3.mlp.experts.w2_weight"

    def change(tensors: dict[str, Tensor]) -> None:
        for suffix in ("", ".scale", ".scale2", ".input_amax", ".original_shape"):
            del tensors[name + suffix]
        tensors[name] = torch.ones(7, 48, 32)

    weights = load(edited("ModelOpt", change)).weights
    assert torch.equal(weights["layers.3.mlp.experts.w2"], torch.ones(7, 48, 32))
    assert isinstance(weights["layers.3.mlp.experts.w13"], Nvfp4Weight)
    assert isinstance(weights["layers.2.mlp.experts.w2"], Nvfp4Weight)


W2 = "model.llm.layers.2.mlp.experts.w2_weight"


@pytest.mark.parametrize(
    ("spelling", "suffix"),
    [
        ("ModelOpt", ""),
        ("ModelOpt", ".scale"),
        ("ModelOpt", ".scale2"),
        ("ModelOpt", ".original_shape"),
        ("compressed-tensors", ".weight_packed"),
        ("compressed-tensors", ".weight_scale"),
        ("compressed-tensors", ".weight_global_scale"),
    ],
)
def test_a_missing_part_is_named(
    edited: Callable[[str, Edit], Path], spelling: str, suffix: str
) -> None:
    folder = edited(spelling, lambda tensors: tensors.pop(W2 + suffix))
    assert_refused(folder, f"`FOLDER` lacks tensors of the raw layout: `{W2}{suffix}`")


@pytest.mark.parametrize(
    ("spelling", "suffix"),
    [("ModelOpt", ".input_amax"), ("compressed-tensors", ".input_global_scale")],
)
def test_scales_of_activations_may_be_missing(
    edited: Callable[[str, Edit], Path], spelling: str, suffix: str
) -> None:
    folder = edited(spelling, lambda tensors: tensors.pop(W2 + suffix))
    assert isinstance(load(folder).weights["layers.2.mlp.experts.w2"], Nvfp4Weight)


def test_an_unknown_part_is_refused(edited: Callable[[str, Edit], Path]) -> None:
    extra = {W2 + ".zero_point": torch.zeros(7)}
    assert_refused(
        edited("ModelOpt", lambda tensors: tensors.update(extra)),
        f"`FOLDER` has tensors that this model has no place for: `{W2}.zero_point`",
        "compare config.json with the files: layers, dense layers and experts must agree",
    )


@pytest.mark.parametrize(
    ("spelling", "suffix", "shape", "expected"),
    [
        ("ModelOpt", "", [7, 48, 15], [7, 48, 16]),
        ("ModelOpt", ".scale", [7, 48, 1], [7, 48, 2]),
        ("ModelOpt", ".scale2", [6], [7]),
        ("compressed-tensors", ".weight_global_scale", [7, 3], [7, 1]),
    ],
)
def test_a_part_of_another_shape_is_named_with_both(
    edited: Callable[[str, Edit], Path],
    spelling: str,
    suffix: str,
    shape: list[int],
    expected: list[int],
) -> None:
    def change(tensors: dict[str, Tensor]) -> None:
        tensors[W2 + suffix] = torch.zeros(shape).to(tensors[W2 + suffix].dtype)

    assert_refused(
        edited(spelling, change),
        f"`{W2}{suffix}` of `FOLDER/model.safetensors` has the shape {shape}, config.json says "
        f"{expected}",
    )


def test_another_original_shape_is_refused(edited: Callable[[str, Edit], Path]) -> None:
    other = {W2 + ".original_shape": torch.tensor([7, 48, 30])}
    assert_refused(
        edited("ModelOpt", lambda tensors: tensors.update(other)),
        f"`{W2}.original_shape` of `FOLDER/model.safetensors` says that the weight has the shape "
        "[7, 48, 30], config.json says [7, 48, 32]",
    )


def test_different_global_scales_of_gate_and_up_are_refused(
    edited: Callable[[str, Edit], Path],
) -> None:
    name = "model.llm.layers.4.mlp.experts.w13_weight.weight_global_scale"

    def change(tensors: dict[str, Tensor]) -> None:
        tensors[name][5, 1] *= 1.5

    assert_refused(
        edited("compressed-tensors", change),
        f"`{name}` of `FOLDER/model.safetensors` has different scales for gate and up, expected "
        "one per expert",
        "quantise gate and up together, as the tools do by default",
    )


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_global_scales_that_are_no_scales_are_refused(
    edited: Callable[[str, Edit], Path], value: float
) -> None:
    def change(tensors: dict[str, Tensor]) -> None:
        tensors[W2 + ".weight_global_scale"][3] = value

    assert_refused(
        edited("compressed-tensors", change),
        f"`{W2}.weight_global_scale` of `FOLDER/model.safetensors` has scales that are not "
        "positive numbers",
    )


def test_a_width_that_is_no_multiple_of_a_block_is_refused(tmp_path: Path) -> None:
    folder = save(make_text_model(hidden_size=48), tmp_path)
    name = "model.layers.2.mlp.experts.down_proj"
    tensors = load_file(folder / "model.safetensors")
    tensors[name] = torch.zeros(7, 48, 10, dtype=torch.uint8)
    tensors[name + ".scale"] = torch.zeros(7, 48, 1).to(torch.float8_e4m3fn)
    tensors[name + ".scale2"] = torch.ones(7)
    tensors[name + ".original_shape"] = torch.tensor([7, 48, 20])
    save_file(tensors, folder / "model.safetensors")
    assert_refused(
        folder,
        f"`{name}` of `FOLDER/model.safetensors` is in NVFP4 and has 20 columns, expected a "
        "multiple of 16",
    )


OTHER = "use the checkpoint in BF16, or one with routed experts in NVFP4"


@pytest.mark.parametrize(
    ("tensors", "kind"),
    [
        (
            {W2 + ".weight_packed": (torch.int32, 4), W2 + ".weight_scale": (torch.bfloat16, 2)},
            "int4",
        ),
        ({W2: (torch.float8_e4m3fn, 32), W2 + ".scale": (torch.float32, 1)}, "fp8"),
        ({W2: (torch.uint8, 16), W2 + ".scale": (torch.uint8, 1)}, "MXFP4 or MXFP8"),
        ({W2: (torch.uint8, 16), W2 + ".scale": (torch.float8_e8m0fnu, 1)}, "MXFP4 or MXFP8"),
        ({W2: (torch.int8, 32)}, "int8"),
    ],
    ids=["int4", "fp8", "MXFP4 in bytes", "MXFP4", "int8"],
)
def test_other_quantisations_are_refused_by_name(
    folders: dict[str, Path],
    tmp_path: Path,
    tensors: dict[str, tuple[torch.dtype, int]],
    kind: str,
) -> None:
    all_tensors = load_file(folders["raw"] / "model.safetensors")
    del all_tensors[W2]
    for name, (dtype, columns) in tensors.items():
        all_tensors[name] = torch.ones(7, 48, columns).to(dtype)
    (tmp_path / "config.json").write_bytes((folders["raw"] / "config.json").read_bytes())
    save_file(all_tensors, tmp_path / "model.safetensors")
    with pytest.raises(InklingError) as caught:
        load(tmp_path)
    assert caught.value.message.startswith(
        f"`{tmp_path}` holds tensors in a quantisation that is not supported ({kind}): `{W2}"
    )
    assert caught.value.hint == OTHER


def test_quantised_attention_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    name = "model.llm.layers.0.attn.wq_du.weight"
    tensors = load_file(folders["raw"] / "model.safetensors")
    tensors[name] = tensors[name].to(torch.float8_e4m3fn)
    tensors["model.llm.layers.0.attn.wq_du.weight_scale"] = torch.ones(1)
    (tmp_path / "config.json").write_bytes((folders["raw"] / "config.json").read_bytes())
    save_file(tensors, tmp_path / "model.safetensors")
    assert_refused(
        tmp_path,
        "`FOLDER` holds tensors in a quantisation that is not supported (fp8): "
        f"`{name}: F8_E4M3`, `{name}_scale: F32`",
        OTHER,
    )
