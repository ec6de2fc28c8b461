"""Merging: adapters folded into the weights of a base checkpoint, shard by shard.

Begin with `plan.py`. Free of torch: a delta is a lazy array over the adapter's file, added to a
base tensor in bounded boxes. Not here: adapters merged into one adapter.
"""
