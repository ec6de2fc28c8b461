"""The base model: weights, layers, and the forward pass over a batch.

Begin with `inkling.py`, which reads from embedding to logits in order. The model owns no state:
keys, values and adapters come in as arguments.
"""
