"""The runtime's arithmetic: one op per file, each a public wrapper beside its reference.

`<op>` picks an implementation, `<op>_reference` is the specification: slow, plain torch, fp32
inside. Nothing here knows the model, the cache or the engine; what an op needs to know about its
batch comes in the arguments (`Segments`, `TokenAdapters`, `KeyLayout`).
"""
