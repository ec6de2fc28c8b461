"""Writing new keys and values into the block cache."""

from torch import Tensor


def write_kv(
    keys: Tensor, values: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor
) -> None:
    """Store the keys and values of this step's tokens, in place.

    Semantics::

        cache[slot // block_size, slot % block_size] = new[t]        slot = slot_mapping[t]

    Args:
        keys: [T, N_kv, D].
        values: [T, N_kv, D].
        key_cache: [blocks, block_size, N_kv, D].
        value_cache: [blocks, block_size, N_kv, D].
        slot_mapping: [T] int64, distinct.
    """
    key_cache.flatten(0, 1).index_copy_(0, slot_mapping, keys)
    value_cache.flatten(0, 1).index_copy_(0, slot_mapping, values)


def write_kv_reference(
    keys: Tensor, values: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor
) -> None:
    """Specify `write_kv`, one token after the other."""
    block_size = key_cache.shape[1]
    for t, slot in enumerate(slot_mapping.tolist()):
        key_cache[slot // block_size, slot % block_size] = keys[t]
        value_cache[slot // block_size, slot % block_size] = values[t]
