"""The defects with which tools for adapters have been compared, and what names each of them.

Two tables: 28 defects of an adapter in the released form, and those of one that PEFT wrote. Each
is an edit of a clean adapter's folder, the consumer that is asked, and the codes that must be
among the findings.
"""

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from checks.broken_folders import CONFIG, WEIGHTS, change_config, cut
from factories import TINY

Edit = Callable[[Path], None]
E, H, INNER = TINY.experts, TINY.hidden, TINY.inner
L1, L2 = "language_model.layers.1", "language_model.layers.2"
PEFT_ROOT = "base_model.model.model.language_model"
P1 = f"{PEFT_ROOT}.layers.1.self_attn"


@dataclass(frozen=True)
class KnownDefect:
    """One row.

    Attributes:
        name: what is wrong, in words.
        edit: what makes it so.
        engine: who is asked.
        codes: what must be found.
        clean: the dialect in which the clean adapter has no finding for this consumer.
        words: further words of the command.
    """

    name: str
    edit: Edit
    engine: str
    codes: tuple[str, ...]
    clean: str = "tinker"
    words: tuple[str, ...] = ()


def tensors(edit: Callable[[dict[str, torch.Tensor]], None]) -> Edit:
    """Return an edit of the folder that changes its tensors."""

    def apply(folder: Path) -> None:
        found = load_file(folder / WEIGHTS)
        edit(found)
        save_file(found, folder / WEIGHTS)

    return apply


def both(*edits: Edit) -> Edit:
    """Return the edits one after another."""

    def apply(folder: Path) -> None:
        for edit in edits:
            edit(folder)

    return apply


def without(part: str) -> Edit:
    """Return an edit that leaves out all tensors with this in their names."""

    def edit(found: dict[str, torch.Tensor]) -> None:
        for name in [name for name in found if part in name]:
            del found[name]

    return tensors(edit)


def renamed(old: str, new: str) -> Edit:
    """Return an edit of names; only the first `old` of each name is replaced."""

    def edit(found: dict[str, torch.Tensor]) -> None:
        for name in [name for name in found if old in name]:
            found[name.replace(old, new, 1)] = found.pop(name)

    return tensors(edit)


def shaped(name: str, *shape: int) -> Edit:
    """Return an edit that gives a tensor another shape."""

    def edit(found: dict[str, torch.Tensor]) -> None:
        found[name] = torch.ones(*shape, dtype=torch.bfloat16)

    return tensors(edit)


def poisoned(name: str, value: float, dtype: torch.dtype = torch.bfloat16) -> Edit:
    """Return an edit that puts one such number into a tensor; all tensors get the dtype."""

    def edit(found: dict[str, torch.Tensor]) -> None:
        for other in found:
            found[other] = found[other].to(dtype)
        found[name].view(-1)[3] = value

    return tensors(edit)


def cut_header(folder: Path) -> None:
    """Keep the weights up to the middle of their header."""
    data = (folder / WEIGHTS).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    (folder / WEIGHTS).write_bytes(data[: 8 + length // 2])


def name_twice(folder: Path) -> None:
    """Give two tensors of the header one name."""
    data = (folder / WEIGHTS).read_bytes()
    other = f"{L1}.attn.wq_du.lora_A.weight".encode()
    (folder / WEIGHTS).write_bytes(data.replace(other, other.replace(b"layers.1", b"layers.2")))


def with_magnitudes(folder: Path) -> None:
    """Make a DoRA adapter: the setting, and a magnitude vector."""
    name = f"{L1}.attn.wq_du.lora_magnitude_vector"
    tensors(lambda found: found.update({name: torch.ones(TINY.query)}))(folder)
    change_config(use_dora=True)(folder)


def with_whole_head(folder: Path) -> None:
    """Save the head whole, beside the factors."""
    weight = torch.ones(TINY.vocab, H, dtype=torch.bfloat16)
    tensors(lambda found: found.update({"language_model.lm_head.weight": weight}))(folder)
    change_config(modules_to_save=["lm_head"])(folder)


def copied_layer(folder: Path) -> None:
    """Add a layer that the base model does not have."""

    def edit(found: dict[str, torch.Tensor]) -> None:
        old, new = f"{PEFT_ROOT}.layers.3.", f"{PEFT_ROOT}.layers.9."
        copies = {name.replace(old, new): t.clone() for name, t in found.items() if old in name}
        found.update(copies)

    tensors(edit)(folder)


def untargeted(folder: Path) -> None:
    """Take the experts out of what the config targets."""
    change_config(target_parameters=None)(folder)


def zero_b(folder: Path) -> None:
    """Make every lora_B zero."""

    def edit(found: dict[str, torch.Tensor]) -> None:
        for name in found:
            if ".lora_B." in name:
                found[name].zero_()

    tensors(edit)(folder)


def ranks_of_16(folder: Path) -> None:
    """Let the config say rank 16 for every module."""
    values = json.loads((folder / CONFIG).read_text())
    change_config(r=16, rank_pattern=dict.fromkeys(values.get("rank_pattern", {}), 16))(folder)


VALUES = ("--values",)
STRICT = ("--fail-on", "warning")
"""Where all that is on disk is applied, and what is not there may be missing on purpose."""

NATIVE_TARGETS = ["wq_du", "wk_dv", "wv_dv", "wr_du", "wo_ud", "w1", "w2", "w3"]
Q1_A, Q1_B = (f"{L1}.attn.wq_du.lora_{factor}.weight" for factor in "AB")

RELEASED: tuple[KnownDefect, ...] = (
    KnownDefect("file cut at 60 %", cut(0.6), "native", ("ADP104",)),
    KnownDefect("header cut", cut_header, "native", ("ADP104",)),
    KnownDefect("one lora_B missing", without(Q1_B), "native", ("ADP002",)),
    KnownDefect("wr_du missing", without(".attn.wr_du."), "sglang", ("SGL209", "ADP011")),
    KnownDefect(
        "experts.w2 missing", without(".experts.w2."), "vllm", ("VLM207", "ADP011"), "vllm"
    ),
    KnownDefect(
        "NaN in a bf16 stack",
        poisoned(f"{L2}.mlp.experts.w1.lora_B.weight", float("nan")),
        "native",
        ("VAL001",),
        words=VALUES,
    ),
    KnownDefect(
        "NaN in a bf16 matrix", poisoned(Q1_A, float("nan")), "native", ("VAL001",), words=VALUES
    ),
    KnownDefect("Inf in bf16", poisoned(Q1_A, float("inf")), "native", ("VAL001",), words=VALUES),
    KnownDefect(
        "NaN in F32",
        poisoned(Q1_A, float("nan"), torch.float32),
        "native",
        ("VAL001",),
        words=VALUES,
    ),
    KnownDefect("config has r 16", ranks_of_16, "native", ("ADP003",)),
    KnownDefect("one A has rank 4", shaped(Q1_A, 4, H), "native", ("ADP003",)),
    KnownDefect("prefix twice", renamed("", "base_model.model." * 2), "native", ("ADP010",)),
    KnownDefect("typo wq_dv", renamed(".wq_du", ".wq_dv"), "native", ("ADP001",)),
    KnownDefect(
        "released names as targets",
        change_config(target_modules=NATIVE_TARGETS),
        "sglang",
        ("SGL205",),
    ),
    KnownDefect("use_rslora", change_config(use_rslora=True), "sglang", ("SGL401",)),
    KnownDefect("DoRA with magnitudes", with_magnitudes, "native", ("ADP008", "ADP009")),
    KnownDefect("use_dora alone", change_config(use_dora=True), "native", ("ADP008",)),
    KnownDefect("lora_alpha 0", change_config(lora_alpha=0), "native", ("ADP012",)),
    KnownDefect("lora_alpha absent", change_config(lora_alpha=...), "native", ("ADP106",)),
    KnownDefect("no config", lambda folder: (folder / CONFIG).unlink(), "native", ("ADP105",)),
    KnownDefect("whole head saved", with_whole_head, "native", ("ADP008", "ADP009")),
    KnownDefect(
        "w1 shared, w3 for each expert",
        shaped(f"{L2}.mlp.experts.w3.lora_A.weight", E, 2, H),
        "sglang",
        ("SGL209", "ADP019"),
    ),
    KnownDefect(
        "expert A transposed",
        shaped(f"{L2}.mlp.experts.w1.lora_A.weight", 1, H, 2),
        "native",
        ("ADP018",),
    ),
    KnownDefect(
        "model.unembed_tokens",
        renamed("language_model.lm_head", "model.unembed_tokens"),
        "vllm",
        ("VLM205",),
        "vllm",
    ),
    KnownDefect(
        "head with too few rows",
        shaped("language_model.lm_head.lora_B.weight", TINY.unpadded - 10, 2),
        "native",
        ("ADP007",),
    ),
    KnownDefect("one name twice in the header", name_twice, "native", ("ADP104",)),
)
"""Of the released form. Two of the 28 stand apart: their clean form is another."""

PEFT: tuple[KnownDefect, ...] = tuple(
    KnownDefect(name, edit, "peft", codes, "peft", words)
    for name, edit, codes, words in (
        ("file cut at 60 %", cut(0.6), ("ADP104",), ()),
        ("one lora_B missing", without(f"{P1}.q_proj.lora_B."), ("ADP002",), ()),
        ("a layer missing", without(f"{PEFT_ROOT}.layers.2."), ("ADP011", "PFA005"), STRICT),
        (
            "typo q_prj",
            renamed("layers.1.self_attn.q_proj", "layers.1.self_attn.q_prj"),
            ("ADP001",),
            (),
        ),
        ("a layer too many", copied_layer, ("ADP006",), ()),
        ("tensors that are not targeted", untargeted, ("PFA004",), ()),
        ("prefix twice", renamed("", "base_model.model."), ("ADP010",), ()),
        ("NaN in bf16", poisoned(f"{P1}.q_proj.lora_A.weight", float("nan")), ("VAL001",), VALUES),
        (
            "NaN in F32",
            poisoned(f"{P1}.q_proj.lora_A.weight", float("nan"), torch.float32),
            ("VAL001",),
            VALUES,
        ),
        ("config has r 16", ranks_of_16, ("ADP003",), ()),
        ("one A has rank 4", shaped(f"{P1}.q_proj.lora_A.weight", 4, H), ("ADP003",), ()),
        ("A transposed", shaped(f"{P1}.q_proj.lora_A.weight", H, 2), ("ADP018",), ()),
        ("use_dora", change_config(use_dora=True), ("ADP008",), ()),
        ("lora_alpha 0", change_config(lora_alpha=0, alpha_pattern={}), ("ADP012",), ()),
        ("lora_alpha absent", change_config(lora_alpha=...), ("ADP106",), ()),
    )
)
"""Of the form that PEFT writes."""

HARMLESS: tuple[KnownDefect, ...] = (
    KnownDefect("no prefix", renamed("base_model.model.", ""), "peft", (), "peft"),
    KnownDefect("rsLoRA", change_config(use_rslora=True), "peft", (), "peft"),
    KnownDefect("all B zero", zero_b, "peft", ("VAL002",), "peft", VALUES),
)
"""Changes with which PEFT applies the adapter as it is meant: exit code 0, and what is said."""
