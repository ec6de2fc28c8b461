"""SGLang 0.5.23's memory: the adapter pool, caches, and how much of a GPU it fills.

The traps: one of the slots is for requests without an adapter; every layer has buffers of every
kind, dense ones on layers with experts and the other way round; as soon as embedding and head
are both targets, each is allocated twice; the shared experts keep a second copy beside the pool.
"""

from inkling_cli.memory.cache import CacheSizes, attention_bytes
from inkling_cli.memory.setup import Setup, divided
from inkling_cli.memory.slots import ModuleKind, SlotPart, SlotTally
from inkling_runtime.adapter.model_spec import LayerSpec, ModelSpec

_MIB = 1 << 20
_VOCAB_BLOCK = 64
"""A vocabulary is padded to a multiple of this before it is divided over ranks."""


def slot_parts(spec: ModelSpec, setup: Setup) -> tuple[SlotPart, ...]:
    """Return the parts of one slot on one rank that holds the layers of `spec`."""
    tally = SlotTally()
    has_experts = any(not layer.is_dense for layer in spec.layers)
    for layer in spec.layers:
        _add_attention(tally, spec, setup, layer)
        _add_dense(tally, spec, setup, layer)
        if has_experts:
            _add_routed(tally, spec, setup, layer)
            _add_shared(tally, spec, setup, layer)
    _add_vocabulary(tally, spec, setup)
    return tally.parts()


def _add_attention(tally: SlotTally, spec: ModelSpec, setup: Setup, layer: LayerSpec) -> None:
    rank, ranks, hidden = setup.max_rank, setup.parallel.attention, spec.hidden_size
    query = layer.num_heads * layer.head_dim
    if _is_target(setup, "qkvr"):
        key = max(layer.num_kv_heads, ranks) * layer.head_dim
        rows = divided(query + 2 * key + layer.num_heads * spec.d_rel, ranks)
        tally.add(ModuleKind.QKVR, 4 * rank * hidden, rows * rank)
    if _is_target(setup, "wo_ud"):
        tally.add(ModuleKind.WO, rank * divided(query, ranks), rank * hidden)


def _add_dense(tally: SlotTally, spec: ModelSpec, setup: Setup, layer: LayerSpec) -> None:
    rank, hidden = setup.max_rank, spec.hidden_size
    width = spec.dense_width if layer.is_dense else spec.expert_width
    rows, columns = (divided(size, setup.parallel.tensor) for size in (2 * width, width))
    if _is_target(setup, "gate_up_proj"):
        kind = ModuleKind.DENSE_GATE_UP
        tally.add(kind, 2 * rank * hidden, rows * rank, is_used=layer.is_dense)
    if _is_target(setup, "down_proj"):
        kind = ModuleKind.DENSE_DOWN
        tally.add(kind, rank * columns, rank * hidden, is_used=layer.is_dense)


def _add_routed(tally: SlotTally, spec: ModelSpec, setup: Setup, layer: LayerSpec) -> None:
    rank, hidden, ranks = setup.max_rank, spec.hidden_size, setup.parallel.expert_tensor
    experts = spec.num_experts
    if not setup.has_global_experts and experts % setup.parallel.expert == 0:
        experts //= setup.parallel.expert
    outer = 1 if setup.is_shared_outer else experts
    is_used = not layer.is_dense and _adapts_experts(setup)
    rows, columns = (divided(size, ranks) for size in (2 * spec.expert_width, spec.expert_width))
    if _is_target(setup, "gate_up_proj"):
        a, b = outer * 2 * rank * hidden, experts * rows * rank
        tally.add(ModuleKind.ROUTED_GATE_UP, a, b, is_used=is_used)
    if _is_target(setup, "down_proj"):
        a, b = experts * rank * columns, outer * hidden * rank
        tally.add(ModuleKind.ROUTED_DOWN, a, b, is_used=is_used)


def _add_shared(tally: SlotTally, spec: ModelSpec, setup: Setup, layer: LayerSpec) -> None:
    if not _adapts_experts(setup):
        return
    rank, hidden, experts = setup.max_rank, spec.hidden_size, spec.num_shared_experts
    outer = 1 if setup.is_shared_outer else experts
    width = divided(spec.expert_width, setup.parallel.tensor)
    gate_up = (outer * 2 * rank * hidden, experts * 2 * width * rank)
    down = (experts * rank * width, outer * hidden * rank)
    is_used = not layer.is_dense
    derived = _derived_elements(setup, gate_up[1], down) if is_used else (0, 0)
    kinds = (ModuleKind.SHARED_GATE_UP, ModuleKind.SHARED_DOWN)
    for kind, factors, extra in zip(kinds, (gate_up, down), derived, strict=True):
        tally.add(kind, *factors, is_used=is_used, derived=extra)


def _derived_elements(setup: Setup, gate_up_b: int, down: tuple[int, int]) -> tuple[int, int]:
    """Return what the shared experts keep beside the pool: of gate and up, and of down."""
    if setup.sink_buffers == "v2":
        return 0, (down[0] if setup.is_shared_outer else down[1])
    return (2 * gate_up_b, down[0]) if setup.is_shared_outer else (0, 0)


def _add_vocabulary(tally: SlotTally, spec: ModelSpec, setup: Setup) -> None:
    rank, hidden, ranks = setup.max_rank, spec.hidden_size, setup.parallel.tensor
    padded = divided(spec.vocab_size, _VOCAB_BLOCK) * _VOCAB_BLOCK
    rows = spec.unpadded_vocab_size if ranks == 1 else divided(padded, ranks)
    factors = {
        "embed_tokens": (ModuleKind.EMBEDDING, rank * spec.unpadded_vocab_size, rank * hidden),
        "lm_head": (ModuleKind.HEAD, rank * hidden, rank * rows),
    }
    wanted = [found for name, found in factors.items() if _is_target(setup, name)]
    for kind, a, b in wanted * len(wanted):
        is_first = kind not in {part.kind for part in tally.parts()}
        tally.add(kind, a, b, is_used=is_first)


def _is_target(setup: Setup, name: str) -> bool:
    return setup.targets is None or name in setup.targets


def _adapts_experts(setup: Setup) -> bool:
    """Return whether experts are adapted: only where both sides are targets."""
    return _is_target(setup, "gate_up_proj") and _is_target(setup, "down_proj")


def cache_sizes(spec: ModelSpec, setup: Setup) -> CacheSizes:
    """Return the K/V and convolution memory of one rank.

    Every layer keeps the convolution state of both kinds of layers, global and sliding; the
    inputs of the two hidden-wide convolutions are whole on every rank unless they are scattered.
    """
    ranks = setup.parallel.attention
    kinds = {layer.is_sliding: layer for layer in spec.layers}
    any_layer = spec.layers[0]
    key = sum(
        max(1, layer.num_kv_heads // ranks) * layer.head_dim
        for layer in (kinds.get(is_sliding, any_layer) for is_sliding in (False, True))
    )
    hidden = spec.hidden_size // ranks if setup.has_sharded_conv else spec.hidden_size
    state = (spec.conv_kernel_size - 1) * 2 * (key + hidden) * 2
    return CacheSizes(
        *attention_bytes(spec, setup, ranks),
        window=spec.sliding_window,
        conv_bytes=len(spec.layers) * state,
        conv_states=setup.conv_states,
        conv_tokens=spec.conv_kernel_size - 1,
    )


_TIERS = ((20, 2048, 8, 8), (35, 4096, 48, 160), (60, 4096, 32, 160), (90, 8192, 256, 512))
"""GPU memory below so many GiB → tokens of a prefill step, largest decode graph below and from
tensor parallel size 4 on."""


def reserve_bytes(setup: Setup, gpu_bytes: int) -> int:
    """Return the memory of a GPU that SGLang keeps for activations and CUDA graphs.

    Without `--mem-fraction-static` it is SGLang's own guess from the size of the GPU, the tokens
    of a prefill step and the parallel sizes (text only: no image processor's share).
    """
    if setup.memory_fraction is not None:
        return gpu_bytes - int(gpu_bytes * setup.memory_fraction)
    gib = gpu_bytes / (1 << 30)
    later = (160, 8192, 256, 512), (float("inf"), 16384, 512, 512)
    _, prefill, small, large = next(tier for tier in (*_TIERS, *later) if gib < tier[0])
    prefill = setup.step_tokens or prefill
    graphs = 2 * (small if setup.parallel.tensor < 4 else large) + 8 * _num_graphs(prefill)
    parallel = setup.parallel.tensor * setup.parallel.pipeline * 128
    reserve = 512 + 1.5 * max(prefill, 2048) + parallel + graphs
    if gib > 60:
        reserve = max(reserve, 10 * 1024)
    fraction = round(1 - reserve * _MIB / gpu_bytes, 3)
    return gpu_bytes - int(gpu_bytes * max(fraction, 0.0))


def _num_graphs(tokens: int) -> int:
    """Return how many token counts of prefill steps are captured as CUDA graphs."""
    small = ((4, 32, 4), (48, 256, 16), (288, 512, 32), (576, 1024, 64), (1280, 4096, 256))
    steps = (*small, (4608, tokens, 512))
    sizes = (size for first, last, step in steps for size in range(first, last + 1, step))
    return sum(size <= tokens for size in sizes)


def needed_cache_bytes(cache: CacheSizes, setup: Setup, gpu_bytes: int) -> int:
    """Return the least cache that a server is of use with: one sequence of a window's length."""
    return cache.sequence_bytes(cache.window)


def num_sequences(cache: CacheSizes, setup: Setup, nbytes: int, length: int) -> int:
    """Return how many sequences of a length fit: global layers, windows and states have pools."""
    states = max(nbytes, 0) * setup.conv_ratio / (1 + setup.conv_ratio)
    per_token = cache.global_bytes_per_token + setup.sliding_ratio * cache.sliding_bytes_per_token
    tokens = (max(nbytes, 0) - states) / per_token
    limits = [states / (cache.conv_bytes * cache.conv_states)]
    if cache.global_bytes_per_token:
        limits.append(tokens / length)
    if cache.sliding_bytes_per_token:
        limits.append(tokens * setup.sliding_ratio / min(length, cache.window))
    return int(min(limits))
