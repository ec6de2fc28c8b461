"""What tensor names mean that an adapter's dialect does not have. No rules here.

Three kinds: tensors that are more than factors of plain LoRA, factors whose prefix alone is
wrong, and factors whose module no dialect knows, for which the nearest known one is told.
"""

import difflib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from inkling_runtime.adapter.adapter import A_SUFFIX, B_SUFFIX, Adapter, module_of
from inkling_runtime.adapter.dialects import DIALECTS, TARGETS
from inkling_runtime.adapter.dialects.dialect import Dialect
from inkling_runtime.adapter.sites import SiteKind

MORE_THAN_FACTORS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"\.lora_magnitude_vector\b", "DoRA magnitudes"),
        (r"\.lora_[AB](\.\w+)?\.bias$", "biases of factors"),
        (r"\btrainable_tokens", "retrained rows of an embedding"),
        (r"\.modules_to_save\.", "whole weights of `modules_to_save`"),
        (r"^(?!.*\.lora_).*\.bias$", "biases"),
        (r"^(?!.*\.lora_).*\.weight$", "whole weights"),
    )
)
"""Tensors that no plain LoRA adapter has, in words, told by their names."""

_ENDING = re.compile(r"\.(lora_?(?:[AaBb]|down|up|embedding_[AB])(?:\.\w+)*)$")
_BODY = re.compile(r"(?:^|\.)(layers\.\d{1,9}\..+|lm_head|unembed|unembed_tokens)$")
_IN_LAYER = re.compile(r"layers\.(\d{1,9})\.")
_EXPERT = re.compile(r"\.experts\.\d+\.")

_ELSEWHERE: Mapping[str, str] = {
    "mlp.w13_dn": "mlp.gate_up_proj",
    "mlp.w2_md": "mlp.down_proj",
    "mlp.experts.w13_weight": "mlp.experts.w1` and `mlp.experts.w3",
    "mlp.experts.w2_weight": "mlp.experts.w2",
    "mlp.shared_experts.shared_w13_weight": "mlp.shared_experts.w1` and `mlp.shared_experts.w3",
    "mlp.shared_experts.shared_w2_weight": "mlp.shared_experts.w2",
    "unembed": "language_model.lm_head",
    "unembed_tokens": "language_model.lm_head",
}
"""Names of the base checkpoint → those of the released adapters."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """A prefix on disk, and the one with which the names would be understood."""

    actual: str
    expected: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """The tensors that an adapter's dialect does not have, each in one place.

    Attributes:
        more_than_factors: what they are, in words → their names.
        misprefixed: the prefix → the names of factors.
        others: names of all others.
    """

    more_than_factors: Mapping[str, list[str]]
    misprefixed: Mapping[Prefix, list[str]]
    others: list[str]


def sort_unknown(adapter: Adapter) -> Unknown:
    """Return what the tensors are that an adapter's dialect does not have."""
    more: dict[str, list[str]] = defaultdict(list)
    factors, others = [], []
    for name in adapter.unknown:
        what = next((words for form, words in MORE_THAN_FACTORS if form.search(name)), None)
        if what is not None:
            more[what].append(name)
        elif name.endswith((A_SUFFIX, B_SUFFIX)):
            factors.append(name)
        else:
            others.append(name)
    prefixes = _prefixes(adapter, dict.fromkeys(map(module_of, factors)))
    wrong: dict[Prefix, list[str]] = defaultdict(list)
    for name in factors:
        prefix = prefixes.get(module_of(name))
        (others if prefix is None else wrong[prefix]).append(name)
    return Unknown(more, wrong, sorted(others))


def _prefixes(adapter: Adapter, modules: Iterable[str]) -> dict[str, Prefix]:
    """Return the wrong prefix of each module that is understood with another one."""
    split = {module: match.start(1) for module in modules if (match := _BODY.search(module))}
    best: dict[str, Prefix] = {}
    for dialect in dict.fromkeys((adapter.dialect.name, *TARGETS)):
        if len(best) == len(split):
            break
        found = _prefixes_in(DIALECTS[dialect], adapter, split)
        if len(found) > len(best):
            best = found
    return best


def _prefixes_in(dialect: Dialect, adapter: Adapter, split: Mapping[str, int]) -> dict[str, Prefix]:
    candidates = {
        module: list(_candidates(dialect, module[:start], module[start:]))
        for module, start in split.items()
    }
    named = dialect.resolve(
        [name for names in candidates.values() for name in names], adapter.config
    )
    found: dict[str, Prefix] = {}
    for module, start in split.items():
        ndim = _ndim(adapter, module)
        others = (name for name in candidates[module] if name != module)
        known = (name for name in others if dialect.parse(named[name], ndim))
        if (name := next(known, None)) is not None:
            body = module[start:]
            found[module] = Prefix(module[:start], name.removesuffix(body))
    return found


def _candidates(dialect: Dialect, actual: str, body: str) -> Iterable[str]:
    """Yield names that the dialect may have: the prefix once, then the dialect's own."""
    for wrapper in filter(None, dialect.wrappers):
        once = re.sub(f"(?:{re.escape(wrapper)}){{2,}}", wrapper, actual)
        if once != actual:
            yield once + body
    if body.startswith("layers."):
        yield dialect.wrappers[0] + dialect.roots[0] + body
        return
    heads = (row.template for row in dialect.written_rows() if row.kinds == (SiteKind.HEAD,))
    yield from (dialect.wrappers[0] + head for head in heads if head.endswith(body))


def _ndim(adapter: Adapter, module: str) -> int:
    tensors = adapter.file.tensors
    tensor = tensors.get(module + A_SUFFIX) or tensors[module + B_SUFFIX]
    return len(tensor.shape)


def foreign_ending(name: str) -> str | None:
    """Return the ending of a factor's name where it is not `lora_A.weight` or `lora_B.weight`."""
    if name.endswith((A_SUFFIX, B_SUFFIX)):
        return None
    match = _ENDING.search(name)
    return None if match is None else match[1]


def suggestion(name: str, adapter: Adapter) -> str | None:
    """Return what a tensor name that no dialect has may be meant to say, in words."""
    ending = foreign_ending(name)
    if ending is not None:
        return _about_ending(ending)
    body = _BODY.search(module_of(name))
    if body is None:
        return "a module's name has `layers.N.` in it, or is that of the head"
    layer, tail = _split_layer(body[1])
    if adapter.dialect.written_as == "peft" and tail.endswith(("experts", ".base_layer")):
        return "`target_parameters` in adapter_config.json does not tell which weights they adapt"
    if tail in _ELSEWHERE:
        return f"`{tail}` is the base checkpoint's name, adapters have `{_ELSEWHERE[tail]}`"
    taken = {m.parsed.row.template for m in adapter.modules if m.parsed.layer == layer}
    free = [row.template for row in adapter.dialect.rows if row.template not in taken]
    tails = [template.removeprefix("layers.{layer}.") for template in free]
    near = difflib.get_close_matches(_EXPERT.sub(".experts.{expert}.", tail), tails, n=1)
    return f"`{tail}` looks like `{near[0].replace('{expert}', 'N')}`" if near else None


def _split_layer(body: str) -> tuple[int, str]:
    """Return the layer of a module and the rest of its name; the head has layer -1."""
    match = _IN_LAYER.match(body)
    return (int(match[1]), body[match.end() :]) if match else (-1, body)


def _about_ending(ending: str) -> str:
    expected = "expected `lora_A.weight` and `lora_B.weight`"
    if ending in ("lora_a", "lora_b"):
        return f"names end in `{ending}`, as MLX writes them, its factors transposed; {expected}"
    if ending.startswith(("lora_down", "lora_up")):
        return f"names end in `{ending}`, as kohya writes them; {expected}"
    if ending.startswith("lora_embedding"):
        return "names with `lora_embedding_` are of an embedding, which no Inkling adapter adapts"
    return f"names end in `{ending}`; {expected}"
