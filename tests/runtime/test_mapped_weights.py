"""Weights are the pages of their files where they can be; loading takes no second model."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from op_cases import CPU
from safetensors.torch import load_file
from tiny_models import make_multimodal_model, make_text_model, save
from torch import Tensor

from inkling_runtime.adapter.model_spec import read_model_spec
from inkling_runtime.adapter.safetensors_file import read_header
from inkling_runtime.errors import InklingError
from inkling_runtime.model.checkpoint import Checkpoint, load_checkpoint
from inkling_runtime.model.mapped_tensors import StoredTensor, iter_tensors


def load(folder: Path, dtype: torch.dtype = torch.float32) -> Checkpoint:
    return load_checkpoint(folder, read_model_spec(folder), CPU, dtype)


@pytest.fixture(scope="module")
def wide_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint whose embedding and head are large enough to be mapped."""
    model = make_text_model(vocab_size=7001, unpadded_vocab_size=6990)
    return save(model, tmp_path_factory.mktemp("wide"))


def test_mapped_tensors_are_what_the_safetensors_library_reads(wide_folder: Path) -> None:
    path = wide_folder / "model.safetensors"
    infos = read_header(path).tensors
    stored = {name: StoredTensor(path, info, path.stat().st_size) for name, info in infos.items()}
    got = {name: tensor.clone() for name, tensor in iter_tensors(stored)}
    want = load_file(path)
    assert list(got) == sorted(infos, key=lambda name: infos[name].start)
    assert all(torch.equal(got[name], want[name]) for name in infos)


def test_a_file_that_changes_size_after_its_header_was_read_is_refused(wide_folder: Path) -> None:
    path = wide_folder / "model.safetensors"
    info = read_header(path).tensors["model.norm.weight"]
    size = path.stat().st_size
    with pytest.raises(InklingError) as caught:
        next(iter_tensors({info.name: StoredTensor(path, info, size + 5)}))
    assert caught.value.message == (
        f"`{path}` has {size} bytes, it had {size + 5} when its header was read"
    )


def mapped_names(weights: dict[str, Tensor], file: Path) -> set[str]:
    """Return the parameters that lie in pages of a file."""
    spans = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith(str(file)):
            spans.append([int(end, 16) for end in line.split()[0].split("-")])
    return {
        name
        for name, weight in weights.items()
        if any(begin <= weight.data_ptr() < end for begin, end in spans)
    }


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="asks Linux what is mapped")
def test_large_tensors_that_are_stored_as_needed_are_the_pages_of_the_file(
    wide_folder: Path,
) -> None:
    file = wide_folder / "model.safetensors"
    weights, halves = load(wide_folder).weights, load(wide_folder, torch.bfloat16).weights
    assert mapped_names(weights, file) == {"embed", "head"}
    assert mapped_names(halves, file) == set()
    stored = load_file(file)
    assert torch.equal(weights["embed"], stored["model.embed_tokens.weight"])
    assert torch.equal(weights["head"], stored["lm_head.weight"][:6990])


def test_a_router_large_enough_to_be_mapped_is_rounded_all_the_same(tmp_path: Path) -> None:
    sizes = {"hidden_size": 256, "moe_intermediate_size": 4, "n_routed_experts": 1030}
    folder = save(make_text_model(**sizes), tmp_path)
    name = "layers.3.mlp.gate.weight"
    stored = load_file(folder / "model.safetensors")["model." + name]
    assert torch.equal(load(folder).weights[name], stored)
    assert torch.equal(load(folder, torch.bfloat16).weights[name], stored.bfloat16().float())


def test_nothing_that_is_done_to_parameters_reaches_the_files(
    wide_folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(wide_folder, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "model.safetensors"
    before, weights = file.read_bytes(), load(tmp_path).weights
    for weight in weights.values():
        weight.zero_()
    assert file.read_bytes() == before


def test_a_file_that_is_replaced_leaves_the_parameters_as_they_were(
    wide_folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(wide_folder, tmp_path, dirs_exist_ok=True)
    weights = load(tmp_path).weights
    (tmp_path / "new").write_bytes(b"something else")
    (tmp_path / "new").replace(tmp_path / "model.safetensors")
    want = load(wide_folder).weights
    assert all(torch.equal(weights[name], want[name]) for name in want)


PEAKS = """
import sys, torch
from pathlib import Path
from inkling_runtime.adapter.model_spec import read_model_spec
from inkling_runtime.model.checkpoint import load_checkpoint

def memory(kind):
    status = Path("/proc/self/status").read_text()
    return int(status.split(kind)[1].split()[0]) * 1024

folder = Path(sys.argv[1])
spec = read_model_spec(folder)
for dtype in (torch.bfloat16, torch.float32):
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = memory("VmRSS:")
    weights = load_checkpoint(folder, spec, torch.device("cpu"), dtype).weights
    for weight in weights.values():
        weight.sum()
    print(memory("VmHWM:") - before, sum(weight.nbytes for weight in weights.values()))
    del weights, weight
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="asks Linux for the peak")
def test_loading_needs_the_memory_of_the_model_and_one_tensor(tmp_path: Path) -> None:
    sizes = {"hidden_size": 256, "moe_intermediate_size": 96, "n_routed_experts": 64}
    folder = save(make_multimodal_model(**sizes, num_experts_per_tok=2), tmp_path)
    infos = read_header(folder / "model.safetensors").tensors.values()
    largest = max(info.nbytes for info in infos)
    command = [sys.executable, "-c", PEAKS, str(folder)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    peaks = [tuple(map(int, line.split())) for line in out.splitlines()]
    assert len(peaks) == 2
    for grown, needed in peaks:
        assert needed > 2 * largest
        assert grown < needed + 1.5 * largest
