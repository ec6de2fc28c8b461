"""The Triton kernels of the ops: one file per op, imported by that op's `_triton` path alone.

Importing triton costs a third of a second, and TRITON_INTERPRET is read when triton is imported,
so nothing but the functions named `_triton` (and `compile_all`) may import from here.

A file holds what the GPU does (`@triton.jit` functions; those that are launched are named
`<what>_kernel`), the functions that launch them on tensors, always through `launch.launch`, and
`VARIANTS`: for every kernel at least one call of those functions at Inkling's real sizes.
`compile_all` runs these calls on meta tensors and compiles just what a GPU would be asked to run,
so the launching functions read no tensor on the host; neither could a CUDA graph.

What a newcomer gets wrong: arithmetic on bf16 is garbage in the interpreter. Upcast right after
every load, and give the operands of `tl.dot` behind an `UPCAST: tl.constexpr`.
"""
