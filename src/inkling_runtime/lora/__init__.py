"""Adapters on the device: factors as tensors, and the slots that batches refer to."""
