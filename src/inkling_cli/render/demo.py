"""What `inkling demo` tells people to try."""

import shlex

from rich.text import Text

from inkling_cli.render.printable import printable

_STEPS: tuple[tuple[str, str], ...] = (
    ("what the adapter is", "inkling inspect adapters/count-down --model model"),
    ("the launch's mistakes", "inkling check-config serve.sh"),
    ("what vLLM would drop silently", "inkling check-adapter adapters/count-down --engine vllm"),
    (
        "the adapter made right for vLLM",
        "inkling convert-adapter adapters/count-down --to vllm -o count-down-vllm",
    ),
    ("clean now", "inkling check-adapter count-down-vllm --engine vllm --model model"),
    ("the base model counts up", 'inkling generate model --prompt "3 4 5" --max-tokens 8'),
    (
        "the adapter counts down, converted or not",
        "inkling generate model --lora adapters/count-down --lora count-down-vllm "
        '--prompt "3 4 5" --max-tokens 8',
    ),
    (
        "does it take effect?",
        'inkling generate model --lora adapters/by-twos --prompt "3 4 5" --max-tokens 8 --compare',
    ),
    (
        "a file of prompts, each with its adapter, in one batch",
        "inkling generate model --lora adapters/count-down --lora adapters/by-twos "
        "--prompts prompts.jsonl --results results.jsonl --max-tokens 8",
    ),
)


def demo_commands() -> list[str]:
    """Return the commands to try, in order, to be run in the demo's folder."""
    return [command for _, command in _STEPS]


def render_demo(folder: str) -> Text:
    """Return where the demo was written and the commands to try."""
    text = Text.assemble(("wrote ", "bold"), f"{printable(folder)}\n\n")
    text.append(f"cd {shlex.quote(folder)}\n", "bold")
    for title, command in _STEPS:
        text.append(f"\n# {title}\n", "dim").append(f"{command}\n")
    text.rstrip()
    return text
