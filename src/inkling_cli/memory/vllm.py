"""vLLM 0.33.0's memory: adapter slots, caches, and how much of a GPU it fills.

The traps: the head's factors are whole on every rank; without the shared-outer flag the hidden
side of every expert is there, and tensor parallelism does not divide it; where ranks outnumber
K/V heads, a head is copied; `--fully-sharded-loras` takes q, k, v and r out altogether.
"""

from inkling_cli.memory.cache import CacheSizes, attention_bytes
from inkling_cli.memory.setup import Setup, divided
from inkling_cli.memory.slots import ModuleKind, SlotPart, SlotTally
from inkling_runtime.adapter.model_spec import LayerSpec, ModelSpec

DEFAULT_MEMORY_FRACTION = 0.92

_BLOCK = 16
"""Tokens of a K/V block."""

_PACKED = {"qkvr": ("wq_du", "wk_dv", "wv_dv", "wr_du"), "w13": ("w1", "w3")}
"""vLLM's merged modules, and the modules that an adapter has for them."""


def slot_parts(spec: ModelSpec, setup: Setup) -> tuple[SlotPart, ...]:
    """Return the parts of one slot on one rank that holds the layers of `spec`."""
    tally = SlotTally()
    for layer in spec.layers:
        _add_attention(tally, spec, setup, layer)
        if layer.is_dense:
            _add_dense(tally, spec, setup, layer)
        else:
            _add_routed(tally, spec, setup, layer)
            _add_shared(tally, spec, setup, layer)
    if _is_target(setup, "lm_head"):
        rank = setup.max_rank
        tally.add(ModuleKind.HEAD, rank * spec.hidden_size, spec.vocab_size * rank)
    return tally.parts()


def _add_attention(tally: SlotTally, spec: ModelSpec, setup: Setup, layer: LayerSpec) -> None:
    rank, ranks, hidden = setup.max_rank, setup.parallel.tensor, spec.hidden_size
    query = layer.num_heads * layer.head_dim
    prefix = f"model.layers.{layer.index}.attn"
    if _is_target(setup, f"{prefix}.qkvr") and not setup.is_fully_sharded:
        key = max(layer.num_kv_heads, ranks) * layer.head_dim
        rows = divided(query + 2 * key + layer.num_heads * spec.d_rel, ranks)
        tally.add(ModuleKind.QKVR, 4 * rank * hidden, rows * rank)
    if _is_target(setup, f"{prefix}.wo_ud"):
        tally.add(ModuleKind.WO, rank * divided(query, ranks), _row_outputs(spec, setup) * rank)


def _add_dense(tally: SlotTally, spec: ModelSpec, setup: Setup, layer: LayerSpec) -> None:
    rank, ranks = setup.max_rank, setup.parallel.tensor
    prefix = f"model.layers.{layer.index}.mlp"
    if _is_target(setup, f"{prefix}.gate_up_proj"):
        rows = divided(2 * spec.dense_width, ranks)
        tally.add(ModuleKind.DENSE_GATE_UP, _column_rank(setup) * spec.hidden_size, rows * rank)
    if _is_target(setup, f"{prefix}.down_proj"):
        columns = divided(spec.dense_width, ranks)
        tally.add(ModuleKind.DENSE_DOWN, rank * columns, _row_outputs(spec, setup) * rank)


def _add_shared(tally: SlotTally, spec: ModelSpec, setup: Setup, layer: LayerSpec) -> None:
    rank = setup.max_rank
    width = divided(spec.num_shared_experts * spec.expert_width, setup.parallel.tensor)
    prefix = f"model.layers.{layer.index}.mlp.sink_experts"
    if _is_target(setup, f"{prefix}.w13"):
        a = 2 * _column_rank(setup) * spec.hidden_size
        tally.add(ModuleKind.SHARED_GATE_UP, a, 2 * width * rank)
    if _is_target(setup, f"{prefix}.w2"):
        tally.add(ModuleKind.SHARED_DOWN, rank * width, _row_outputs(spec, setup) * rank)


def _add_routed(tally: SlotTally, spec: ModelSpec, setup: Setup, layer: LayerSpec) -> None:
    if not _is_target(setup, f"model.layers.{layer.index}.mlp.experts"):
        return
    rank, hidden, ranks = setup.max_rank, spec.hidden_size, setup.parallel.expert_tensor
    experts = divided(spec.num_experts, setup.parallel.expert)
    width = divided(spec.expert_width, ranks)
    outer = 1 if setup.is_shared_outer else experts
    column_rank = divided(rank, ranks) if setup.is_fully_sharded else rank
    outputs = divided(hidden, ranks) if setup.is_fully_sharded else hidden
    a = 2 * outer * column_rank * hidden
    tally.add(ModuleKind.ROUTED_GATE_UP, a, 2 * experts * width * rank)
    tally.add(ModuleKind.ROUTED_DOWN, experts * rank * width, outer * outputs * rank)


def _column_rank(setup: Setup) -> int:
    """Return the rows of an A factor whose base weight is divided by outputs."""
    return divided(setup.max_rank, setup.parallel.tensor if setup.is_fully_sharded else 1)


def _row_outputs(spec: ModelSpec, setup: Setup) -> int:
    """Return the rows of a B factor whose base weight is divided by inputs."""
    return divided(spec.hidden_size, setup.parallel.tensor if setup.is_fully_sharded else 1)


def _is_target(setup: Setup, module: str) -> bool:
    """Return whether a module passes `--lora-target-modules`: by name, last part, child, parent."""
    if setup.targets is None:
        return True
    targets, name = set(setup.targets), module.rpartition(".")[2]
    children = _PACKED.get(name, ())
    if name == "experts":
        children = tuple(target for target in targets if target.startswith("experts."))
    return not targets.isdisjoint({module, name, *children})


def cache_sizes(spec: ModelSpec, setup: Setup) -> CacheSizes:
    """Return the K/V and convolution memory of one rank.

    The convolution's state is kept like a sliding window of as many tokens as it has taps, in
    blocks of that many: a sequence holds up to two blocks. A token's inputs of all four
    convolutions are one row for each K/V head, as wide as the next power of two.
    """
    ranks, taps = setup.parallel.tensor, spec.conv_kernel_size
    conv = 0
    for layer in spec.layers:
        heads = max(divided(layer.num_kv_heads, ranks), 1)
        width = 2 * layer.head_dim + 2 * (spec.hidden_size // layer.num_kv_heads)
        conv += heads * (1 << (width - 1).bit_length())
    return CacheSizes(
        *attention_bytes(spec, setup, ranks),
        window=spec.sliding_window,
        conv_bytes=conv * taps * 2,
        conv_states=2,
        conv_tokens=taps,
    )


def reserve_bytes(setup: Setup, gpu_bytes: int) -> int:
    """Return the memory of a GPU that vLLM leaves alone."""
    fraction = setup.memory_fraction
    fraction = DEFAULT_MEMORY_FRACTION if fraction is None else fraction
    return gpu_bytes - int(gpu_bytes * fraction)


_STEP_TOKENS = ((70 << 30, 2048), (160 << 30, 8192))
"""GPU memory below it → tokens of a step where `--max-num-batched-tokens` is not given."""


def needed_cache_bytes(cache: CacheSizes, setup: Setup, gpu_bytes: int) -> int:
    """Return the least cache that vLLM starts with: one sequence of the longest length.

    Windows and convolution states are counted with the tokens of all steps in flight before them.
    """
    step = next((tokens for limit, tokens in _STEP_TOKENS if gpu_bytes < limit), 16384)
    in_flight = setup.steps_in_flight * (setup.step_tokens or step)
    window, taps = (
        min(tokens - 1 + in_flight, setup.context) for tokens in (cache.window, cache.conv_tokens)
    )
    whole = divided(setup.context, _BLOCK) * _BLOCK * cache.global_bytes_per_token
    sliding = (divided(window, _BLOCK) + 1) * _BLOCK * cache.sliding_bytes_per_token
    return whole + sliding + (divided(taps, cache.conv_tokens) + 1) * cache.conv_bytes


def num_sequences(cache: CacheSizes, setup: Setup, nbytes: int, length: int) -> int:
    """Return how many sequences of a length fit into a cache; all layers share one pool."""
    return max(nbytes, 0) // cache.sequence_bytes(length)
