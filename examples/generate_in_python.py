"""Run one batch that mixes the base model and several adapters, and print tokens as they come.

python examples/generate_in_python.py MODEL PROMPT ADAPTER [ADAPTER ...]
"""

import sys
from pathlib import Path

from inkling_runtime.adapter.load_factors import read_factors
from inkling_runtime.errors import InklingError
from inkling_runtime.text import ReplyForm, Request, SamplingParams, TextLLM


def main(model: Path, prompt: str, folders: list[Path]) -> None:
    """Continue a prompt with the base model and with each adapter, all in one batch."""
    text_llm = TextLLM(model, device="cpu")
    spec = text_llm.llm.spec
    for folder in folders:
        text_llm.llm.load_adapter(folder.name, read_factors(folder, spec))

    names = [None, *(folder.name for folder in folders)]
    sampling = SamplingParams(max_tokens=8, temperature=0)
    requests = [Request(text_llm.encode(prompt), sampling, name) for name in names]
    replies = ["" for _ in names]
    for event in text_llm.stream(requests, [ReplyForm.TEXT] * len(names)):
        replies[event.token.request] += "".join(piece.text for piece in event.pieces)
    for name, reply in zip(names, replies, strict=True):
        print(f"{name or 'base'}: {reply}")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), sys.argv[2], [Path(folder) for folder in sys.argv[3:]])
    except InklingError as error:
        sys.exit(f"error: {error}")
