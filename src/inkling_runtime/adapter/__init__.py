"""Adapters as files and values, without torch.

Data flows one way: safetensors header and adapter_config.json → `Adapter` (modules understood
through a dialect's naming table) → `Conversion` plan → write. Nothing here guesses a layout from
dimensions: in both released models every fused gate_up expert matrix is square.
"""
