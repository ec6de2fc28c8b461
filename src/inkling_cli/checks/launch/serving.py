"""The launch that serves an adapter best, as a line for people and as words to judge."""

import json
import shlex
from collections.abc import Sequence

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.launch.requirements import (
    Requirements,
    needs_of_conversion,
    requirements,
)
from inkling_cli.checks.launch.vllm.limits import ALLOWED_RANKS, smallest_allowed_rank
from inkling_cli.checks.shell_word import shell_word
from inkling_runtime.adapter.convert.plan import Conversion

_PROGRAMS = {
    Engine.VLLM: ("vllm", "serve"),
    Engine.SGLANG: ("python", "-m", "sglang.launch_server", "--model-path"),
}


def serving_words(
    engine: Engine, model: str, options: Sequence[str], entry: str | None = None
) -> list[str]:
    """Return the command that serves a model with options and, at start-up, an adapter."""
    adapter = [engine.adapters_option, entry] if entry is not None else []
    return [*_PROGRAMS[engine], model, *options, *adapter]


def adapter_entry(engine: Engine, name: str, path: str, *, is_packed: bool = False) -> str:
    """Return an adapter as a value of the engine's option: `name=path`, or JSON where it must be.

    `is_packed` says to vLLM that the experts are packed as PEFT packs them.
    """
    is_plain = not any(character in name + path for character in "=,{} ")
    if is_plain and not is_packed:
        return f"{name}={path}"
    if engine is Engine.SGLANG:
        return json.dumps({"lora_name": name, "lora_path": path})
    packed = {"is_3d_lora_weight": True} if is_packed else {}
    return json.dumps({"name": name, "path": path, **packed})


def format_command(required: Requirements, words: Sequence[str]) -> str:
    """Return a command as a line of a shell, its environment in front."""
    environment = [f"{name}={value}" for name, value in required.env.items()]
    return " ".join([*environment, shlex.join(words)])


def serving_lines(conversion: Conversion, path: str) -> tuple[str, ...]:
    """Return the environment and options to serve or load a conversion's result, a line each."""
    name = conversion.dialect.name
    if name == "peft":
        word = json.dumps(path, ensure_ascii=False)
        return (f"model = peft.PeftModel.from_pretrained(model, {word})",)
    if name not in tuple(Engine):
        return ()
    engine, needs = Engine(name), needs_of_conversion(conversion)
    if engine is Engine.VLLM and smallest_allowed_rank(needs.rank) is None:
        largest = ALLOWED_RANKS[-1]
        resize = f"inkling resize {shell_word(path)} --rank {largest} -o OUT"
        return (f"vLLM takes ranks up to {largest}, this one is {needs.rank}: `{resize}`",)
    required = requirements(engine, needs)
    words = serving_words(engine, "MODEL", required.words(), adapter_entry(engine, "NAME", path))
    return (format_command(required, words),)
