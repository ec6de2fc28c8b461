"""The library under `inkling`: adapters (torch-free) and the runtime that runs them.

Import the rooms directly (`inkling_runtime.adapter`, `inkling_runtime.llm`): this package
imports nothing by itself, so that reading an adapter never costs an import of torch.
"""

__version__ = "0.1.0"
