"""Our CPU kernels: C++ sources, compiled on the machine they run on, loaded with ctypes.

A CPU's kernels are worth compiling where they run: one build for all would leave half of each
vector register unused. What can be done without them is done by torch, only slower.
"""
