"""What of a launch decides its memory, as a `Setup`; and what had to be assumed for it.

No rules and no I/O. Numbers that are absent, or that no engine takes, count as the default.
"""

import re
from dataclasses import dataclass
from fractions import Fraction

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.launch.launch import Launch
from inkling_cli.checks.launch.options.table import parse_number
from inkling_cli.checks.launch.sglang.limits import DEFAULT_SLOTS
from inkling_cli.checks.launch.sglang.pool import pool_targets
from inkling_cli.checks.launch.sglang.reading import detected_layouts
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.launch.vllm.limits import (
    DEFAULT_MAX_LORAS,
    DEFAULT_MAX_RANK,
)
from inkling_cli.checks.launch.vllm.sizes import ENDINGS
from inkling_cli.checks.sglang_targets import POOL_TARGETS
from inkling_cli.memory.setup import Parallel, Setup, WeightFormat
from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.errors import format_names

RELEASED_RANK = 32
"""The rank of adapters as trainers make them by default."""

_GLOBAL_EXPERT_RUNNERS = (
    "flashinfer_cutlass",
    "flashinfer_cutedsl",
    "flashinfer_trtllm",
    "flashinfer_trtllm_routed",
    "flashinfer_mxfp4",
    "hpc_ops",
)
"""SGLang's `--moe-runner-backend`s that keep the factors of all experts on every rank."""

_KV_BYTES = {"fp8": Fraction(1), "mxfp8": Fraction(33, 32), "nvfp4": Fraction(9, 16)}
"""Beginning of `--kv-cache-dtype` → bytes of a number, scales included; two otherwise."""

_RATIO = 0.1
"""SGLang's ratios of caches, as it sets them for an Inkling."""

_MOST = 1_000_000
"""A number above it is a slip of the pen and counts as not given."""


@dataclass(frozen=True, slots=True)
class ReadSetup:
    """A launch's setup, and in words what the launch or this machine does not tell."""

    setup: Setup
    assumptions: tuple[str, ...]


def read_setup(subject: LaunchSubject, spec: ModelSpec) -> ReadSetup:
    """Return what decides the memory of a launch."""
    read = _read_vllm if subject.engine is Engine.VLLM else _read_sglang
    return read(subject, spec)


def _read_vllm(subject: LaunchSubject, spec: ModelSpec) -> ReadSetup:
    launch = subject.launch
    weights, assumptions = _weights(subject)
    tensor = _positive(launch, "--tensor-parallel-size", 1)
    ranks = tensor * _positive(launch, "--data-parallel-size", 1)
    ranks *= _positive(launch, "--prefill-context-parallel-size", 1)
    pipeline = _positive(launch, "--pipeline-parallel-size", 1)
    asynchronous = launch.use("--async-scheduling")
    has_ep = launch.is_on("--enable-expert-parallel")
    slots = _positive(launch, "--max-loras", DEFAULT_MAX_LORAS)
    setup = Setup(
        engine="vllm",
        parallel=Parallel(
            tensor=tensor,
            attention=tensor,
            expert=ranks if has_ep else 1,
            expert_tensor=1 if has_ep else ranks,
            pipeline=pipeline,
        ),
        has_lora=subject.lora_enabled,
        max_rank=_positive(launch, "--max-lora-rank", DEFAULT_MAX_RANK),
        num_slots=slots,
        is_shared_outer=launch.is_on("--enable-moe-shared-loras"),
        targets=launch.values("--lora-target-modules") or None,
        is_fully_sharded=launch.is_on("--fully-sharded-loras"),
        host_adapters=_positive(launch, "--max-cpu-loras", slots),
        weights=weights,
        kv_bytes=_kv_bytes(launch),
        context=_tokens(launch, "--max-model-len") or spec.max_positions,
        memory_fraction=_between(launch, "--gpu-memory-utilization", 1),
        step_tokens=_tokens(launch, "--max-num-batched-tokens"),
        steps_in_flight=pipeline + (asynchronous is None or asynchronous.enabled),
    )
    return ReadSetup(setup, assumptions)


def _read_sglang(subject: LaunchSubject, spec: ModelSpec) -> ReadSetup:
    launch = subject.launch
    weights, assumptions = _weights(subject)
    rank, layout, more = _rank_and_layout(subject)
    targets = pool_targets(subject)
    if targets is None and subject.lora_enabled:
        more += ("the modules with slots are not known here, all six counted",)
    if _positive(launch, "--pp-size", 1) > 1:
        more += ("pipeline stages are not planned for SGLang, all layers counted on each rank",)
    v2 = launch.text("--lora-backend") == "triton_v2"
    setup = Setup(
        engine="sglang",
        parallel=_sglang_parallel(launch),
        has_lora=subject.lora_enabled,
        max_rank=rank,
        num_slots=_positive(launch, "--max-loras-per-batch", DEFAULT_SLOTS),
        is_shared_outer=layout,
        targets=tuple(targets or POOL_TARGETS),
        has_global_experts=launch.text("--moe-runner-backend") in _GLOBAL_EXPERT_RUNNERS,
        sink_buffers="v2" if v2 else "legacy",
        host_adapters=_positive(launch, "--max-loaded-loras", max(len(launch.adapters), 1)),
        weights=weights,
        kv_bytes=_kv_bytes(launch),
        context=_tokens(launch, "--context-length") or spec.max_positions,
        memory_fraction=_between(launch, "--mem-fraction-static", 1),
        sliding_ratio=_between(launch, "--swa-full-tokens-ratio", 1) or _RATIO,
        conv_ratio=_between(launch, "--mamba-full-memory-ratio", 100) or _RATIO,
        conv_states=_sglang_conv_states(launch),
        step_tokens=_positive(launch, "--chunked-prefill-size", 0) or None,
        has_sharded_conv=launch.is_on("--enable-scattered-sconv"),
    )
    return ReadSetup(setup, assumptions + (more if subject.lora_enabled else ()))


def _sglang_parallel(launch: Launch) -> Parallel:
    tensor = _positive(launch, "--tp-size", 1)
    data = _positive(launch, "--dp-size", 1) if launch.is_on("--enable-dp-attention") else 1
    data = _positive(launch, "--attn-dp-size", data) * _positive(launch, "--attn-cp-size", 1)
    expert = min(_positive(launch, "--ep-size", 1), tensor)
    shared = expert * _positive(launch, "--moe-dp-size", 1)
    return Parallel(
        tensor=tensor,
        attention=max(tensor // data, 1),
        expert=expert,
        expert_tensor=max(tensor // shared, 1),
    )


def _sglang_conv_states(launch: Launch) -> int:
    """Return the states of a running sequence: three, and one to track, two with overlap."""
    return 4 if launch.is_on("--disable-overlap-schedule") else 5


def _rank_and_layout(subject: LaunchSubject) -> tuple[int, bool, tuple[str, ...]]:
    """Return SGLang's rank limit and whether slots are shared-outer, and what is assumed."""
    launch, adapters = subject.launch, subject.startup_adapters
    unread = [entry.ref.name for entry in subject.unread if entry.ref.at_startup]
    assumed: list[str] = []
    rank = _positive(launch, "--max-lora-rank", 0)
    if not rank:
        known = [adapter.config.rank for adapter in adapters]
        rank = max(known, default=RELEASED_RANK)
        if unread or not known:
            assumed.append(f"the rank of the slots is not known here, {rank} counted")
    forced = launch.use("--experts-shared-outer-loras")
    if forced is not None:
        return rank, forced.enabled, tuple(assumed)
    layouts = {layout for adapter in adapters for layout in detected_layouts(adapter)}
    if unread and not layouts:
        assumed.append(f"{format_names(unread)} not on this machine, shared-outer experts counted")
        return rank, True, tuple(assumed)
    return rank, True in layouts, tuple(assumed)


def _weights(subject: LaunchSubject) -> tuple[WeightFormat, tuple[str, ...]]:
    """Return how routed experts are stored, from the option, the config, or the model's name."""
    option = subject.launch.text("--quantization") or ""
    said = f"{option} {subject.model.quantization}".lower()
    names = f"{subject.model.ref} {subject.launch.model}".lower()
    if any(word in f"{said} {names}" for word in ("nvfp4", "modelopt_fp4")):
        return WeightFormat.NVFP4, ()
    if said.strip():
        shown = option or "quantization_config"
        return WeightFormat.BF16, (f"`{shown}` is not planned, weights counted as bf16",)
    return WeightFormat.BF16, ()


def _positive(launch: Launch, name: str, default: int) -> int:
    value = launch.integer(name)
    return value if value is not None and 0 < value <= _MOST else default


def _between(launch: Launch, name: str, most: float) -> float | None:
    """Return a number above zero and not above `most`."""
    text = launch.text(name)
    value = parse_number(text) if text else None
    return value if value is not None and 0 < value <= most else None


def _kv_bytes(launch: Launch) -> Fraction:
    name = launch.text("--kv-cache-dtype") or "auto"
    found = (size for start, size in _KV_BYTES.items() if name.startswith(start))
    return next(found, Fraction(2))


def _tokens(launch: Launch, name: str) -> int | None:
    """Return a number of tokens above zero, `32k` and `32K` as vLLM reads them."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([kKmM]?)", launch.text(name) or "")
    return int(float(match[1]) * ENDINGS.get(match[2], 1)) or None if match else None
