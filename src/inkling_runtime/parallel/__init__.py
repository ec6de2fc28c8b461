"""One model over several processes of one machine: tensor and expert parallelism.

Rank 0 is the process that the user started: it schedules, samples and answers. The others hold
their part of the weights, of the cache and of the adapters, and do what rank 0 tells them. Not a
cluster: beyond one machine use vLLM or SGLang.
"""
