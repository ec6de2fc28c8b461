"""The library's whole way from several adapters to one, and pairs of random ones to merge."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import forms
from conversion import spec_of
from hypothesis import strategies as st
from lora_factors import Array, Factors
from strategies import Example

from factories import GROUPS, TINY, Module, released_adapter_config, released_modules
from inkling_runtime.adapter.adapter import read_adapter
from inkling_runtime.adapter.arrays import CONTENTS
from inkling_runtime.adapter.combine.plan import gather_parts, plan_sum
from inkling_runtime.adapter.convert.options import Options
from inkling_runtime.adapter.convert.plan import DEFAULT, Conversion
from inkling_runtime.adapter.convert.write import write_conversion
from inkling_runtime.adapter.dialects import require_target
from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.adapter.provenance.proven import Account, Action
from inkling_runtime.adapter.resize.coefficient_store import CoefficientStore
from inkling_runtime.adapter.resize.kept import Resize
from inkling_runtime.adapter.resize.plan import Destination
from inkling_runtime.adapter.resize.target_rank import TargetRank

SPEC = spec_of(TINY)


def merge(
    sources: Sequence[Path],
    weights: Sequence[float],
    out: Path,
    *,
    to: str,
    dialects: Sequence[str | None] | None = None,
    spec: ModelSpec | None = SPEC,
    options: Options = DEFAULT,
    target: TargetRank | None = None,
) -> tuple[Conversion, Resize | None]:
    """Plan and write a merged adapter; return its plan, and what it keeps if it is resized."""
    read_in = dialects or [None] * len(sources)
    adapters = [read_adapter(*one) for one in zip(sources, read_in, strict=True)]
    parts = gather_parts(adapters, weights, spec, CONTENTS)
    destination = Destination(require_target(to), spec, options)
    with CoefficientStore() as store:
        conversion, resize = plan_sum(parts, target, destination, CONTENTS, store)
        write_conversion(conversion, out, account=Account(Action.MERGE, tuple(adapters)))
    return conversion, resize


def sum_of(deltas: Sequence[Mapping[str, Factors]], weights: Sequence[float]) -> dict[str, Array]:
    """Return Σ w·ΔW of each site in float64."""
    total: dict[str, Array] = {}
    for found, weight in zip(deltas, weights, strict=True):
        for site, factors in found.items():
            total[site] = total.get(site, 0.0) + weight * factors.delta()
    return total


FORMS: dict[str, tuple[str, Callable[..., list[Module]]]] = {
    "released": ("tinker", released_modules),
    "per expert": ("tinker", partial(released_modules, per_expert=True)),
    "one by one": ("tinker", lambda *parts: forms.numbered(released_modules(*parts), TINY)),
    "padded head": ("tinker", partial(released_modules, head_rows="padded")),
    "vllm": ("vllm", forms.vllm_modules),
    "vllm one by one": ("vllm", partial(forms.vllm_modules, one_by_one=True)),
    "sglang": ("sglang", forms.sglang_modules),
    "sglang fused": ("sglang", partial(forms.sglang_modules, attention="qkvr", routed="fused")),
    "sglang stacks": ("sglang", partial(forms.sglang_modules, shared="stack", per_expert=True)),
    "peft": ("peft", forms.peft_modules),
    "raw": ("raw", forms.raw_modules),
}
"""Forms of adapters for `TINY`, and the dialect of each."""

_CONFIGS = {"vllm": forms.vllm_config, "peft": forms.peft_config}


@st.composite
def adapters(draw: st.DrawFn) -> Example:
    """Return an adapter for `TINY` in any form, of any part of the model."""
    dialect, modules_of = FORMS[draw(st.sampled_from(sorted(FORMS)))]
    groups = draw(st.sets(st.sampled_from(GROUPS), min_size=1))
    layers = draw(st.sampled_from([(0, 1, 2, 3), (0, 1, 2, 3), (0, 2), (1,)]))
    modules = modules_of(TINY, groups, layers) or modules_of(TINY)
    rank, alpha = draw(st.integers(1, 3)), draw(st.sampled_from([1, 2, 8, 7, 0.75]))
    if dialect in _CONFIGS:
        config = _CONFIGS[dialect](modules, rank, alpha)
    elif dialect == "sglang":
        config = forms.sglang_config(rank, alpha)
    else:
        config = released_adapter_config(rank, alpha, use_rslora=draw(st.booleans()))
    dtype, seed = draw(st.sampled_from(["BF16", "F32", "F16"])), draw(st.integers(0, 999))
    edits = draw(st.lists(st.sampled_from([forms.tie_gates, forms.repeat_outer]), unique=True))
    return Example(dialect, TINY, tuple(modules), config, dtype, seed, tuple(edits))
