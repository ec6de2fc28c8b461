"""What cannot be merged, and what is said then. Nothing is left behind."""

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import merge, plan_of, save_base, tensors_of, write_normal_adapter
from safetensors.torch import save_file

from factories import SQUARE, TINY
from inkling_runtime.errors import InklingError
from inkling_runtime.merge.write import write_merge

Tensors = dict[str, torch.Tensor]
MakeBase = Callable[[Callable[[Tensors], object]], Path]
W13 = "model.llm.layers.1.mlp.experts.w13_weight"
HEAD = "model.llm.unembed.weight"


@pytest.fixture(scope="module")
def raw_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_base(tmp_path_factory.mktemp("raw"), "raw", torch.bfloat16)


@pytest.fixture
def edited(raw_base: Path, tmp_path: Path) -> MakeBase:
    """Return a function that copies the base with its tensors changed."""

    def edit(change: Callable[[Tensors], object]) -> Path:
        base = tmp_path / "base"
        shutil.copytree(raw_base, base)
        tensors = tensors_of(base)
        change(tensors)
        save_file(tensors, base / "model.safetensors", metadata={"format": "pt"})
        return base

    return edit


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    return write_normal_adapter(tmp_path / "adapter")


def assert_refused(
    base: Path, *adapters: Path, message: str, hint: str | None = None, weights=()
) -> None:
    """Require that neither a plan nor a folder comes of a merge."""
    out = adapters[0].parent / "out"
    before = sorted(out.parent.iterdir())
    with pytest.raises(InklingError) as caught:
        merge(base, out, *adapters, weights=weights)
    names = {"BASE": str(base), "OUT": str(out), "ADAPTER": str(adapters[0])}
    for name, path in names.items():
        message = message.replace(name, path)
    assert (caught.value.message, caught.value.hint) == (message, hint)
    assert sorted(out.parent.iterdir()) == before


def test_adapted_weights_in_bytes_are_refused(edited: MakeBase, adapter: Path) -> None:
    packed = torch.zeros(5, 22, 20, dtype=torch.uint8)
    base = edited(lambda tensors: tensors.update({W13: packed}))
    assert_refused(
        base,
        adapter,
        message=f"`BASE` holds quantised weights that the adapter changes: `{W13}`",
        hint="merge into the checkpoint in BF16, and quantise the result",
    )


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.int8], ids=str)
def test_adapted_weights_under_other_names_are_refused(
    edited: MakeBase, adapter: Path, dtype: torch.dtype
) -> None:
    def change(tensors: Tensors) -> None:
        for layer in (1, 2, 3):
            name = W13.replace(".1.", f".{layer}.")
            tensors[f"{name}.weight_packed"] = tensors.pop(name).to(dtype)
            tensors[f"{name}.weight_scale"] = torch.ones(5)

    name = W13.replace
    assert_refused(
        edited(change),
        adapter,
        message="`BASE` holds quantised weights that the adapter changes: "
        f"`{W13}`, `{name('.1.', '.2.')}`, `{name('.1.', '.3.')}`",
        hint="merge into the checkpoint in BF16, and quantise the result",
    )


def test_quantised_weights_that_are_not_adapted_pass_through(
    edited: MakeBase, tmp_path: Path
) -> None:
    def change(tensors: Tensors) -> None:
        tensors[W13] = torch.arange(5 * 22 * 20, dtype=torch.uint8).view(5, 22, 20)
        tensors[f"{W13}.scale"] = torch.ones(5, 22, 3).to(torch.float8_e4m3fn)

    base = edited(change)
    adapter = write_normal_adapter(tmp_path / "adapter", groups=["attention", "shared"])
    merge(base, tmp_path / "out", adapter)
    before, after = tensors_of(base), tensors_of(tmp_path / "out")
    for name in (W13, f"{W13}.scale"):
        assert torch.equal(after[name].view(torch.uint8), before[name].view(torch.uint8))


def test_missing_tensors_are_named(edited: MakeBase, adapter: Path) -> None:
    base = edited(lambda tensors: (tensors.pop(HEAD), tensors.pop(W13)))
    assert_refused(
        base,
        adapter,
        message=f"`BASE` lacks tensors that the adapter changes: `{HEAD}`, `{W13}`",
        hint="compare config.json with the files: layers, dense layers and experts must agree",
    )


def test_other_shapes_than_the_config_says_are_refused_with_both(
    edited: MakeBase, adapter: Path
) -> None:
    base = edited(lambda tensors: tensors.update({W13: torch.zeros(5, 20, 40)}))
    assert_refused(
        base,
        adapter,
        message=f"`{W13}` of `BASE` has the shape [5, 20, 40], config.json says [5, 22, 40]",
    )


def test_a_tensor_in_two_shards_is_refused(edited: MakeBase, adapter: Path) -> None:
    base = edited(lambda tensors: None)
    save_file({HEAD: torch.zeros(3)}, base / "second.safetensors")
    assert_refused(
        base,
        adapter,
        message=f"tensor `{HEAD}` is in `BASE/model.safetensors` and in "
        "`BASE/second.safetensors`, expected it once",
    )


def test_surplus_rows_of_the_head_are_cut_only_if_zero(edited: MakeBase, tmp_path: Path) -> None:
    base = edited(lambda tensors: tensors.update({HEAD: tensors[HEAD][:60].clone()}))
    adapter = write_normal_adapter(tmp_path / "adapter", head_rows="padded")
    assert_refused(
        base,
        adapter,
        message="`lm_head` of `ADAPTER` has 64 rows where the base model has 60, and the surplus "
        "rows are not zero",
        hint="merge into a checkpoint with the padded vocabulary",
    )


def test_an_adapter_of_another_size_is_refused(raw_base: Path, tmp_path: Path) -> None:
    adapter = write_normal_adapter(tmp_path / "adapter", sizes=SQUARE)
    assert_refused(
        raw_base,
        adapter,
        message="`lm_head` of `ADAPTER` does not fit the base model: "
        f"A takes {SQUARE.hidden} features, the base model gives {TINY.hidden}",
    )


def test_what_is_more_than_lora_is_refused(raw_base: Path, tmp_path: Path) -> None:
    adapter = write_normal_adapter(tmp_path / "adapter", config={"use_dora": True})
    with pytest.raises(InklingError) as caught:
        plan_of(raw_base, adapter)
    assert "with which its effect is more than s·B·A" in caught.value.message
    assert caught.value.hint == "only plain LoRA adapters can be merged"


@pytest.mark.parametrize(("weight", "shown"), [(0.0, "0"), (float("nan"), "nan")])
def test_weights_are_numbers_other_than_zero(
    raw_base: Path, adapter: Path, weight: float, shown: str
) -> None:
    assert_refused(
        raw_base,
        adapter,
        weights=(weight,),
        message=f"the weight of `ADAPTER` is {shown}, expected a number other than 0",
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("factor", ["A", "B"])
def test_factors_that_are_no_numbers_are_refused_before_anything_is_written(
    raw_base: Path, tmp_path: Path, value: float, factor: str
) -> None:
    name = f"language_model.layers.2.mlp.experts.w3.lora_{factor}.weight"

    def spoil(tensors: Tensors) -> None:
        tensors[name].view(-1)[-1] = value

    assert_refused(
        raw_base,
        write_normal_adapter(tmp_path / "adapter", edit=spoil),
        message=f"`{name}` of `ADAPTER/adapter_model.safetensors` holds NaN or infinity, "
        "expected numbers",
        hint="the adapter is broken; train or fetch it again",
    )


def test_deltas_beyond_what_f32_holds_are_refused(raw_base: Path, tmp_path: Path) -> None:
    module = "language_model.layers.0.attn.wq_du"

    def grow(tensors: Tensors) -> None:
        for factor in "AB":
            tensors[f"{module}.lora_{factor}.weight"].fill_(2.0**64)

    assert_refused(
        raw_base,
        write_normal_adapter(tmp_path / "adapter", dtype="F32", edit=grow),
        message=f"`{module}.lora_A.weight` and its B give a delta of up to 2.72e+39, expected it "
        "below 1e+37",
        hint="the adapter is broken; train or fetch it again",
    )


def test_a_sum_beyond_f16_is_refused_with_the_tensor(tmp_path: Path) -> None:
    base = save_base(tmp_path / "base", "raw", torch.float16)

    def grow(tensors: Tensors) -> None:
        tensors["language_model.layers.0.attn.wo_ud.lora_B.weight"][3] = 1e6

    adapter = write_normal_adapter(
        tmp_path / "adapter", groups=["attention"], dtype="F32", edit=grow
    )
    out = tmp_path / "out"
    with pytest.raises(InklingError) as caught:
        merge(base, out, adapter)
    assert caught.value.message.startswith("`model.llm.layers.0.attn.wo_ud.weight`: ")
    assert "beyond what F16 holds" in caught.value.message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["adapter", "base"]


def test_a_base_that_is_not_there_is_refused(adapter: Path) -> None:
    hint = "merging needs its weights here: download them first"
    base = adapter.parent / "base"
    assert_refused(
        base,
        adapter,
        message="`BASE` does not exist, expected the base model's folder",
        hint=hint,
    )
    base.write_text("{}")
    assert_refused(
        base, adapter, message="`BASE` is a file, expected the base model's folder", hint=hint
    )


def test_a_model_of_another_kind_is_refused(edited: MakeBase, adapter: Path) -> None:
    base = edited(lambda tensors: (tensors.clear(), tensors.update({"x": torch.zeros(1)})))
    assert_refused(
        base,
        adapter,
        message="`BASE` holds no Inkling text model: no tensor name begins with "
        "`model.llm.layers.` or `model.language_model.layers.` or `model.layers.`, there are `x`",
    )


@pytest.mark.parametrize(
    ("place", "relation"),
    [("base", "is"), ("base/out", "is in"), ("adapter", "is"), (".", "holds")],
)
def test_the_result_is_never_written_into_what_is_read(
    edited: MakeBase,
    adapter: Path,
    place: str,
    relation: str,
) -> None:
    base = edited(lambda tensors: None)
    plan, out = plan_of(base, adapter), base.parent / place
    with pytest.raises(InklingError) as caught:
        write_merge(plan, out, overwrite=True)
    source = adapter if place == "adapter" else base
    assert caught.value.message == (
        f"`{out}` {relation} the folder `{source}` that is being read, expected another folder"
    )


def test_only_a_checkpoint_is_replaced(raw_base: Path, adapter: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")
    with pytest.raises(InklingError) as caught:
        write_merge(plan_of(raw_base, adapter), out, overwrite=True)
    assert caught.value.message == f"`{out}` holds no `config.json`, so it is not replaced"
    shutil.rmtree(out)
    merge(raw_base, out, adapter)
    with pytest.raises(InklingError) as caught:
        merge(raw_base, out, adapter)
    assert caught.value.hint == "pass `--overwrite` to replace it"
    write_merge(plan_of(raw_base, adapter), out, overwrite=True)
    assert json.loads((out / "config.json").read_text())["model_type"] == "inkling_mm_model"


@pytest.mark.parametrize("error", [KeyboardInterrupt, InklingError])
def test_nothing_is_left_of_a_merge_that_is_interrupted(
    raw_base: Path, adapter: Path, tmp_path: Path, error: type[BaseException]
) -> None:
    def interrupt(nbytes: int) -> None:
        raise error("now")

    with pytest.raises(error):
        write_merge(plan_of(raw_base, adapter), tmp_path / "out", progress=interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["adapter"]


def test_a_disk_without_room_is_refused_before_anything_is_written(
    raw_base: Path, adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(raw_base, adapter)
    usage = shutil.disk_usage(tmp_path)._replace(free=plan.nbytes - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(InklingError) as caught:
        write_merge(plan, tmp_path / "out")
    assert f"needs {plan.nbytes:,} bytes, the disk has" in caught.value.message
    assert [path.name for path in tmp_path.iterdir()] == ["adapter"]


@pytest.mark.parametrize("countdown", range(1, 6))
def test_a_disk_that_fills_up_leaves_nothing(
    raw_base: Path,
    adapter: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    countdown: int,
) -> None:
    left = [countdown]

    def failing(real: Callable[..., int]) -> Callable[..., int]:
        def write(*arguments: Any) -> int:
            left[0] -= 1
            if left[0] <= 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(*arguments)

        return write

    plan = plan_of(raw_base, adapter)
    for name in ("pwrite", "copy_file_range"):
        monkeypatch.setattr(os, name, failing(getattr(os, name)))
    with pytest.raises(InklingError, match=r"the disk is full, `.*out` was not written"):
        write_merge(plan, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["adapter"]


@pytest.mark.parametrize("changed", ["copied", "summed", "adapter"])
def test_what_changes_while_it_is_read_gives_no_result(tmp_path: Path, changed: str) -> None:
    base = save_base(tmp_path / "base", "raw", torch.bfloat16, max_shard_size="20KB")
    adapter = write_normal_adapter(tmp_path / "adapter", groups={"head"})
    plan = plan_of(base, adapter)
    shards = {shard.is_changed: shard.source.path for shard in plan.shards}
    weights = adapter / "adapter_model.safetensors"
    path = {"copied": shards[False], "summed": shards[True], "adapter": weights}[changed]

    def touch(nbytes: int) -> None:
        os.utime(path, ns=(1, 1))

    with pytest.raises(InklingError, match="changed while it was read"):
        write_merge(plan, tmp_path / "out", progress=touch)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["adapter", "base"]
