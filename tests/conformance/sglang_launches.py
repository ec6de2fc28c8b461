"""Launches of SGLang for comparing our verdicts with the engine's own: valid, and broken.

Deterministic: the same seed gives the same launches. Every launch is a list of words and an
environment; `record_sglang.py` asks the engine about them. `{root}` stands for the test world.
"""

import random
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from conformance import sglang_odd_worlds as odd
from conformance.sglang_adapters import CONFIG_VARIANTS, DROPPED_KEYS, FILE_FAULTS
from conformance.sglang_odd_pieces import ODD, ODD_ENVIRONMENTS, ODD_LATER
from conformance.sglang_pieces import ALONE, ENVIRONMENTS, HARMLESS, LATER, TOGETHER
from inkling_cli.checks.engine import Engine
from inkling_cli.checks.launch.options.table import Arity, OptionSpec, ValueKind, option_table
from inkling_cli.checks.launch.sglang.argument_limits import NEEDS, NOT_FOR_INKLING, OBJECTS, RANGES

TRITON = ("--lora-backend", "triton")
SHARED = "--experts-shared-outer-loras"
ALL = ("--max-lora-rank", "2", "--lora-target-modules", "all")
_NAMES = """
    released runtime-names attention for-vllm one-by-one stacks both-layouts rank32 rslora
    alpha-pattern rank-pattern released-names pattern no-head-name torn prefix-1 prefix-2
    raw-names model-layers both-names unembed unembed-tokens hf-attention qkvr-4r qkvr-r qkvr-3r
    dense-split dense-w router embed embed-padded mtp extra-layer typo wrong-kind no-r-part
    no-q-part no-up no-gate no-down no-shared no-experts no-dense experts-only shared-only
    dense-only head-only attention-only kv-swapped narrow-hidden narrow-output short-dense
    short-head padded-head three-experts five-experts odd-shared wide-shared shared-stacks
    shared-one-stack shared-numbered rank-above rank-below ranks-differ all-ranks-above
    flat-expert
"""
ADAPTERS = _NAMES.split()
ADAPTERS += [*CONFIG_VARIANTS, *DROPPED_KEYS, *FILE_FAULTS]


@dataclass(frozen=True)
class Trial:
    """One launch: the adapter, the model, the words after the fixed ones, and the environment."""

    id: str
    extra: tuple[str, ...]
    adapter: str = "released"
    model: str = "model"
    env: Mapping[str, str] = field(default_factory=dict)
    load: str = "startup"

    def words(self) -> list[str]:
        """Return the command: what the engine's parser is given, after `sglang serve`."""
        words = ["sglang", "serve", "--model-path", f"{{root}}/{self.model}"]
        words += ["--skip-tokenizer-init", "--load-format", "auto", "--device", "cuda"]
        words += ["--enable-lora"]
        if self.load == "startup":
            words += ["--lora-paths", f"oracle={{root}}/adapters/{self.adapter}"]
        return [*words, "--random-seed", "0", *self.extra]

    def case(self, root: str) -> dict[str, Any]:
        """Return the case as the engine's side takes it: all words hang on one option."""
        extra = shlex.join(word.replace("{root}", root) for word in self.extra)
        return {
            "id": self.id,
            "adapter": f"{root}/adapters/{self.adapter}",
            "model_config": f"{root}/{self.model}/config.json",
            "flags": {"random-seed": f"0 {extra}".strip()},
            "env": dict(self.env),
            "load": self.load,
        }


def trials(seed: int = 0, mixtures: int = 120) -> list[Trial]:
    """Return the launches of a seed: each piece alone, each adapter in two servers, mixtures."""
    found = [*_adapters(), *_pieces(), *_arguments(random.Random(seed))]
    found += _mixtures(random.Random(seed + 1), mixtures)
    found += _odd_ones()
    return [replace(trial, id=f"{number:04d}-{trial.id}") for number, trial in enumerate(found)]


UNJUDGED = {
    "--decrypted-config-file",
    "--lora-paths",
    "--model-checksum",
    "--model-config-parser",
    "--speculative-draft-model-path",
}
"""Options whose values name files or plugins of the server's machine."""


def _slug(words: tuple[str, ...]) -> str:
    text = " ".join(words).replace("{root}/adapters/", "")
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60]


def _adapters() -> Iterator[Trial]:
    for name in ADAPTERS:
        yield Trial(f"adapter-{name}", TRITON, name)
        if name != "gone":  # our own command wants the files that it is given
            yield Trial(f"later-{name}", (*TRITON, *ALL, SHARED), name, load="dynamic")


def _pieces() -> Iterator[Trial]:
    for adapter, text in ALONE:
        words = tuple(shlex.split(text))
        yield Trial(f"alone-{_slug(words)}", words, adapter)
    for adapter, text in LATER:
        words = tuple(shlex.split(text))
        yield Trial(f"later-{_slug(words)}", words, adapter, load="dynamic")
    for text, env in ENVIRONMENTS:
        words = tuple(shlex.split(text))
        told = tuple(f"{name} {value}" for name, value in env.items())
        yield Trial(f"env-{_slug(told)}-{_slug(words)}", words, env=env)
    for model in ("text-only",):
        yield Trial(f"model-{model}", TRITON, model=model)


def _arguments(rng: random.Random) -> Iterator[Trial]:
    """Yield options with values of every kind, right and wrong, one option at a time."""
    table = option_table(Engine.SGLANG)
    for name, allowed in RANGES.items():
        for number in (allowed.low - 1, max(allowed.low, 1)):
            yield _argument(name, f"{number:g}")
    for written in (*NEEDS, *NOT_FOR_INKLING):
        name, _, value = written.partition("=")
        yield _argument(name, *_a_value(table.spec(name), value))
    for name in OBJECTS:
        yield _argument(name, "[]")
    names = sorted({spec.name for spec, _ in table.spellings.values()} - UNJUDGED)
    for name in rng.sample(names, 60):
        spec = table.spec(name)
        yield _argument(name, *_wrong_value(spec))
    for name in rng.sample(HARMLESS, 20):
        yield Trial(f"harmless-{_slug((name,))}", (*TRITON, *shlex.split(name)))


def _argument(*words: str) -> Trial:
    return Trial(f"argument-{_slug(words)}", (*TRITON, *words))


def _a_value(spec: OptionSpec, value: str) -> tuple[str, ...]:
    if spec.arity is Arity.NONE:
        return ()
    if value or spec.choices:
        return (value or spec.choices[0],)
    return ("{}",) if spec.kind is ValueKind.JSON else ("1",)


def _wrong_value(spec: OptionSpec) -> tuple[str, ...]:
    """Return a value that the parser refuses, if the option has one: a stray word for a switch."""
    if spec.kind in (ValueKind.INTEGER, ValueKind.SIZE):
        return ("4.5",)
    return ("some_word",)


def _odd_ones() -> Iterator[Trial]:
    """Yield odd adapters, models and words; last, so that the others keep their numbers."""
    for name in odd.ADAPTERS:
        yield Trial(f"odd-{name}", TRITON, name)
        yield Trial(f"later-{name}", (*TRITON, *ALL, SHARED), name, load="dynamic")
    for model in odd.MODELS:
        yield Trial(f"model-{model}", TRITON, model=model)
    for adapter, text in ODD:
        words = tuple(shlex.split(text))
        yield Trial(f"odd-{_slug(words)}", words, adapter)
    for adapter, text in ODD_LATER:
        words = tuple(shlex.split(text))
        yield Trial(f"later-{_slug(words)}", words, adapter, load="dynamic")
    for text, env in ODD_ENVIRONMENTS:
        words = tuple(shlex.split(text))
        told = tuple(f"{name} {value}" for name, value in env.items())
        yield Trial(f"odd-{_slug(told)}-{_slug(words)}", words, env=env)


def _mixtures(rng: random.Random, count: int) -> Iterator[Trial]:
    """Yield launches of several pieces, most of them with one or two that break."""
    calm = ["released", "runtime-names", "attention", "one-by-one", "stacks", "no-dense", "embed"]
    settings = [dict(env) for _, env in ENVIRONMENTS]
    calm_settings = [env for env in settings if "high" not in env.values()]
    for _ in range(count):
        load = rng.choice(("startup", "startup", "dynamic"))
        adapter = rng.choice(calm if rng.random() < 0.7 else ADAPTERS[:-1])
        words = list(TRITON) if rng.random() < 0.8 else []
        if load == "dynamic":
            words += ALL if rng.random() < 0.8 else []
            words += [SHARED] if rng.random() < 0.6 else []
        for text in rng.sample(TOGETHER, rng.choice((0, 1, 1, 2))):
            words += shlex.split(text)
        for text in rng.sample(HARMLESS, rng.choice((0, 1, 2))):
            words += shlex.split(text)
        env = rng.choice(calm_settings) if rng.random() < 0.15 else {}
        yield Trial(f"mixture-{_slug(tuple(words))}", tuple(words), adapter, env=env, load=load)
