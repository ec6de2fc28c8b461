"""Where PEFT looks for each tensor of an adapter's file: the renaming on load.

For the multimodal model, transformers' own renaming of raw checkpoints is applied to the names of
factors too, but only its plain renames: what it splits or interleaves is left as it is. For the
text model nothing is renamed. Without this, names of raw checkpoints would seem to match nothing,
while PEFT loads some of them and drops the rest.
"""

import re
from collections.abc import Iterable

from inkling_runtime.adapter.dialects.peft import WRAPPER

ADAPTER_NAME = "default"
"""What PEFT calls an adapter that is loaded without a name."""

_NAMED = f".{ADAPTER_NAME}"

_STRIPPED = (
    (re.compile("base_model.model.model."), "model."),
    (re.compile("base_model.model."), ""),
)
"""In this order; the dots stand for any character, as in PEFT."""

_FACTOR = re.compile(r"lora_[^.]*")

_IN_MODEL = re.compile(rf"(\.lora_[^.]*){re.escape(_NAMED)}(?=\.(?:weight|bias)$|$)")

_RENAMES = tuple(
    (re.compile(rf"{pattern}(?!\w)" if pattern[-1].isalnum() else pattern), new)
    for pattern, new in (
        (r"model\.llm\.layers", "model.language_model.layers"),
        (r"model\.audio\.", "model.audio_tower."),
        (r"model\.visual", "model.vision_tower"),
        (r"vision_tower.layers.linear_(\d+)", r"vision_tower.encoder_layers.\1.projection"),
        (r"vision_tower.layers.norm_(\d+)", r"vision_tower.encoder_layers.\1.layer_norm"),
        (r"shared_w2_weight", "down_proj"),
        (r"mlp.experts.w2_weight", "mlp.experts.down_proj"),
        (r"mlp.gate.bias", "mlp.gate.e_score_correction_bias"),
        (r"attn\.wq_du", "self_attn.q_proj"),
        (r"attn\.wk_dv", "self_attn.k_proj"),
        (r"attn\.wv_dv", "self_attn.v_proj"),
        (r"attn\.wr_du", "self_attn.r_proj"),
        (r"attn\.wo_ud", "self_attn.o_proj"),
        (r"\.attn\.q_norm", ".self_attn.q_norm"),
        (r"\.attn\.k_norm", ".self_attn.k_norm"),
        (r"\.attn\.k_sconv", ".self_attn.k_sconv.conv1d"),
        (r"\.attn\.v_sconv", ".self_attn.v_sconv.conv1d"),
        (r"\.attn\.rel_logits_proj", ".self_attn.rel_logits_proj"),
        (r"mlp_norm", "post_attention_layernorm"),
        (r"attn_norm", "input_layernorm"),
    )
)
"""transformers' renames of a raw checkpoint that can change the name of a factor, in its order."""


def looked_up(names: Iterable[str], *, is_multimodal: bool) -> dict[str, str]:
    """Return name on disk → the name that PEFT looks up, in the order in which PEFT goes.

    Where two names are looked up as one, the later one is loaded; of those that are renamed to
    one name, it is the first in natural order. The name that is looked up
    begins with `base_model.model.` and does not hold the name of the adapter.
    """
    known = set(names)
    if not is_multimodal:
        return {name: _as_saved(name) for name in sorted(known)}
    factors = sorted((name for name in known if ".lora_" in name), key=_natural)
    keys = {name: name for name in sorted(known.difference(factors))}
    for serialised, by_new_name in _groups(factors, known).items():
        for names in by_new_name.values():
            keys |= dict.fromkeys(reversed(names), _as_saved(serialised))
    return keys


def _groups(factors: Iterable[str], known: set[str]) -> dict[str, dict[str, list[str]]]:
    """Return name without the adapter's → name after the renames → names on disk."""
    found: dict[str, dict[str, list[str]]] = {}
    for name in factors:
        new = _renamed(name, known)
        found.setdefault(_serialised(new), {}).setdefault(new, []).append(name)
    return found


def is_renamed(name: str) -> bool:
    """Whether a rename for raw checkpoints changes the name of a factor."""
    return any(pattern.search(name) for pattern, _ in _RENAMES)


def _renamed(name: str, known: set[str]) -> str:
    new = name
    for pattern, text in _STRIPPED:
        new = pattern.sub(text, new, count=1)
    new = _FACTOR.sub(lambda match: match[0] + _NAMED, new, count=1)
    for pattern, text in _RENAMES:
        match = pattern.search(new)
        if match is not None:
            new = new.replace(match[0], match.expand(text), 1)
    before, found, after = new.rpartition(_NAMED)
    if not name.endswith(before + after if found else new):
        return new
    if name.startswith("model.") and name.removeprefix("model.") in known:
        return name.removeprefix("model.")
    return f"model.{name}" if f"model.{name}" in known else name


def _serialised(name: str) -> str:
    return _without_adapter_name(name if name.startswith("base_model.") else WRAPPER + name)


def _without_adapter_name(name: str) -> str:
    """Return a name without the adapter's, where that is the last part or the last but one."""
    if name.endswith(_NAMED):
        return name.removesuffix(_NAMED)
    start, dot, end = name.rpartition(".")
    return f"{start.removesuffix(_NAMED)}.{end}" if dot else name


def _as_saved(name: str) -> str:
    """Return the name under which PEFT would save what it loads from this one.

    A name as the model itself has it, with the adapter's name behind the factor's, is taken too;
    and DoRA's vector is saved without its ending.
    """
    name = f"{name}.weight" if name.endswith(".lora_magnitude_vector") else name
    return _IN_MODEL.sub(r"\1", name)


def _natural(name: str) -> list[tuple[int, str, int]]:
    """Return a key that sorts numbers as numbers, part by part, and before words."""
    parts = []
    for part in name.split("."):
        word = "" if part.isdecimal() else part.rstrip("0123456789")
        digits = part[len(word) :]
        parts.append((1 if word or not digits else 0, word, int(digits[:18]) if digits else -1))
    return parts
