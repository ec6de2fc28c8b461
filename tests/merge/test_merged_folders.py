"""What stands beside the weights in a merged folder, and what is left as it was."""

import os
import shutil
import tracemalloc
from math import prod
from pathlib import Path

import pytest
import torch
from checkpoints import files_of, merge, plan_of, save_base, tensors_of, write_normal_adapter
from safetensors.torch import save_file

from factories import (
    TINY,
    Sizes,
    raw_config,
    released_adapter_config,
    released_modules,
    safetensors_bytes,
    write_json,
    write_sparse_adapter,
)
from inkling_runtime.merge.copy_file import copy_file


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return save_base(tmp_path / "base", "raw", torch.bfloat16, max_shard_size="20KB")


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    return write_normal_adapter(tmp_path / "adapter")


def test_all_other_files_are_copied_byte_for_byte(
    tmp_path: Path, base: Path, adapter: Path
) -> None:
    (base / "chat_template.jinja").write_text("{{ messages }}")
    (base / "assets").mkdir()
    (base / "assets" / "logo.png").write_bytes(b"\x89PNG")
    merge(base, tmp_path / "out", adapter)
    assert files_of(tmp_path / "out") == files_of(base)
    assert {"config.json", "model.safetensors.index.json", "assets/logo.png"} <= set(files_of(base))


def test_links_of_a_download_cache_are_followed(tmp_path: Path, base: Path, adapter: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "abc"
    shutil.copytree(base, blobs)
    snapshot.mkdir(parents=True)
    for number, path in enumerate(sorted(blobs.iterdir())):
        blob = path.rename(blobs / f"{number:064x}")
        (snapshot / path.name).symlink_to(os.path.relpath(blob, snapshot))
    merge(snapshot, tmp_path / "out", adapter)
    merge(base, tmp_path / "plain", adapter)
    out = tmp_path / "out"
    assert not any(path.is_symlink() for path in out.rglob("*"))
    names = sorted(path.name for path in out.iterdir())
    assert names == sorted(path.name for path in base.iterdir())
    for name in names:
        assert (out / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()


LEFT_OUT = (
    ".cache",
    "adapter_config.json",
    "adapter_model.safetensors",
    "consolidated.safetensors",
    "original/consolidated.00.pth",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)


def test_weights_in_other_formats_are_left_out_and_named(
    tmp_path: Path, base: Path, adapter: Path
) -> None:
    for name in LEFT_OUT:
        path = base / name / "x" if name == ".cache" else base / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"before the merge")
    plan = merge(base, tmp_path / "out", adapter)
    assert tuple(path.as_posix() for path in plan.base.left_out) == LEFT_OUT
    assert plan.notes == (
        f"not copied from `{base}`: `.cache`, `adapter_config.json`, `adapter_model.safetensors` "
        "and 4 more",
    )
    found = {path.relative_to(tmp_path / "out").as_posix() for path in tmp_path.glob("out/**/*")}
    assert found.isdisjoint(LEFT_OUT)


def test_shards_without_a_delta_are_copied_as_they_are(tmp_path: Path, base: Path) -> None:
    adapter = write_normal_adapter(tmp_path / "adapter", groups=["head"])
    plan = merge(base, tmp_path / "out", adapter)
    changed = {shard.source.path.name for shard in plan.shards if shard.is_changed}
    assert len(changed) == 1
    for shard in plan.shards:
        name = shard.source.path.name
        same = (tmp_path / "out" / name).read_bytes() == shard.source.path.read_bytes()
        assert same == (name not in changed)


def test_draft_layers_stay_and_are_noted(tmp_path: Path, adapter: Path) -> None:
    base = save_base(tmp_path / "base", "raw")
    tensors = tensors_of(base)
    draft = {"model.mtp.layers.0.attn.wq_du.weight": torch.ones(3, 4)}
    save_file(tensors | draft, base / "model.safetensors", metadata={"format": "pt"})
    plan = merge(base, tmp_path / "out", adapter)
    assert plan.notes == (
        "`model.mtp.*`: 1 tensor of the draft layers stay as they are, so drafts are those of the "
        "base model",
    )
    name, tensor = next(iter(draft.items()))
    assert torch.equal(tensors_of(tmp_path / "out")[name], tensor)


def test_the_plan_counts_what_is_written(tmp_path: Path, base: Path, adapter: Path) -> None:
    plan = merge(base, tmp_path / "out", adapter)
    before, after = tensors_of(base), tensors_of(tmp_path / "out")
    changed = [name for name in before if not torch.equal(before[name], after[name])]
    assert plan.num_changed == len(changed)
    assert plan.num_tensors == len(before)
    assert plan.changed_bytes == sum(before[name].nbytes for name in changed)
    assert plan.nbytes == sum(p.stat().st_size for p in (tmp_path / "out").glob("*.safetensors"))


def test_progress_ends_at_the_bytes_of_all_weights(
    tmp_path: Path, base: Path, adapter: Path
) -> None:
    from inkling_runtime.merge.write import write_merge

    plan = plan_of(base, adapter)
    done: list[int] = []
    write_merge(plan, tmp_path / "out", progress=done.append)
    headers = sum(
        shard.source.file_size - sum(t.nbytes for t in shard.source.tensors.values())
        for shard in plan.shards
        if shard.is_changed
    )
    assert sum(done) == plan.nbytes - headers


@pytest.mark.parametrize("size", [0, 1, 9 << 20])
@pytest.mark.parametrize("has_kernel_copy", [True, False])
def test_a_copy_holds_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, has_kernel_copy: bool
) -> None:
    if not has_kernel_copy:
        monkeypatch.delattr(os, "copy_file_range")
    (tmp_path / "a").write_bytes(os.urandom(size))
    done: list[int] = []
    copy_file(tmp_path / "a", tmp_path / "b", done.append)
    assert (tmp_path / "b").read_bytes() == (tmp_path / "a").read_bytes()
    assert sum(done) == size


def test_a_copy_goes_on_where_the_kernel_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: int) -> int:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "copy_file_range", refuse)
    (tmp_path / "a").write_bytes(b"bytes")
    copy_file(tmp_path / "a", tmp_path / "b", lambda nbytes: None)
    assert (tmp_path / "b").read_bytes() == b"bytes"


def test_memory_is_that_of_a_few_blocks_whatever_the_size(tmp_path: Path) -> None:
    sizes = Sizes(hidden=512, layers=1, num_dense=0, inner=256, experts=256)
    base = write_sparse_base(tmp_path / "base", sizes)
    modules = released_modules(sizes, ["routed"])
    adapter = write_sparse_adapter(tmp_path / "adapter", modules, released_adapter_config(8))
    assert (base / "model.safetensors").stat().st_size > 200_000_000
    tracemalloc.start()
    try:
        merge(base, tmp_path / "out", adapter)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000_000


def write_sparse_base(folder: Path, sizes: Sizes) -> Path:
    """Write the experts of a raw checkpoint of one layer as zeros that use no disk."""
    root = "model.llm.layers.0.mlp.experts."
    shapes = {
        f"{root}w13_weight": (sizes.experts, 2 * sizes.inner, sizes.hidden),
        f"{root}w2_weight": (sizes.experts, sizes.hidden, sizes.inner),
    }
    header, position = {}, 0
    for name, shape in shapes.items():
        end = position + 2 * prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [position, end]}
        position = end
    write_json(folder / "config.json", raw_config(sizes))
    head = safetensors_bytes(header)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(head)
        file.truncate(len(head) + position)
    return folder


def test_the_tiny_widths_differ_so_that_no_wrong_layout_fits() -> None:
    widths = (TINY.hidden, TINY.inner, TINY.experts, TINY.shared, TINY.dense, TINY.query)
    assert len(set(widths)) == len(widths)
