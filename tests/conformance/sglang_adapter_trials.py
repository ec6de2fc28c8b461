"""Adapters and servers for comparing our verdict of every module with what SGLang does.

Deterministic: the same seed gives the same trials. A trial names the form of an adapter, what is
changed of it and the server; `record_sglang_adapters.py` asks the engine about them.
"""

import random
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checks.adapter_folders import write_world
from conformance.sglang_drafts import draft
from conformance.sglang_more_mutations import CONFIGS, FILES, MUTATIONS

_T = "--lora-backend triton"
_ALL = "--max-lora-rank 3 --lora-target-modules all"
_SHARED = "--experts-shared-outer-loras"


@dataclass(frozen=True)
class Server:
    """A server: its options, how it gets the adapter, and its model."""

    options: str
    load: str = "startup"
    model: str = "model"


SERVERS = {
    "startup": Server(_T),
    "default": Server("--lora-backend csgmv"),
    "later": Server(f"{_T} {_ALL} {_SHARED}", "dynamic"),
    "later-unshared": Server(f"{_T} {_ALL}", "dynamic"),
    "later-no-head": Server(
        f"{_T} {_SHARED} --max-lora-rank 3 --lora-target-modules qkvr wo_ud gate_up_proj down_proj",
        "dynamic",
    ),
    "unshared": Server(f"{_T} --no-experts-shared-outer-loras"),
    "shared": Server(f"{_T} {_SHARED}"),
    "targets-all": Server(f"{_T} --lora-target-modules all"),
    "targets-attention": Server(f"{_T} --lora-target-modules qkvr wo_ud"),
    "targets-half": Server(f"{_T} --lora-target-modules qkvr wo_ud gate_up_proj lm_head"),
    "rank-8": Server(f"{_T} --max-lora-rank 8"),
    "rank-1": Server(f"{_T} --max-lora-rank 1"),
    "strict": Server(f"{_T} --lora-strict-loading"),
    "virtual": Server(f"{_T} --lora-use-virtual-experts"),
    "one-slot": Server("--max-loras-per-batch 1 --max-loaded-loras 1"),
    "text-only": Server(_T, model="text-only"),
    "no-sink": Server(_T, model="no-sink"),
    "default-no-sink": Server("--lora-backend csgmv", model="no-sink"),
}

WHOLE = (
    *("startup", "later", "later-unshared", "unshared", "shared", "targets-all"),
    *("rank-8", "strict", "virtual"),
)
"""Servers that adapt every kind of module."""


@dataclass(frozen=True)
class Trial:
    """An adapter and a server, each by name."""

    base: str
    mutations: tuple[str, ...]
    server: str

    @property
    def id(self) -> str:
        """The trial's name."""
        return "+".join((self.base, *self.mutations)) + f"@{self.server}"

    @property
    def adapter(self) -> str:
        """The name of the adapter's folder."""
        return "+".join((self.base, *self.mutations))

    def words(self) -> list[str]:
        """Return the server's options."""
        return shlex.split(SERVERS[self.server].options)

    def write(self, root: Path) -> Path:
        """Write the adapter into a test world, if it is not there, and return its folder."""
        folder = root / "tried" / self.adapter
        if not folder.exists():
            made = draft(self.base)
            for name in self.mutations:
                MUTATIONS[name](made)
            made.write(folder)
        return folder

    def case(self, root: Path) -> dict[str, Any]:
        """Return the trial as the engine's side takes it: all words hang on one option."""
        server = SERVERS[self.server]
        return {
            "id": self.id,
            "adapter": str(self.write(root)),
            "model_config": str(root / server.model / "config.json"),
            "flags": {"random-seed": f"0 {server.options}".strip()},
            "load": server.load,
        }


def trials(seed: int = 0, pairs: int = 220) -> list[Trial]:
    """Return the trials: each form in each server, each mutation in two, pairs in one of them."""
    found = [*_forms(), *_alone(), *_on_other_forms(), *_pairs(random.Random(seed), pairs)]
    return list(dict.fromkeys(found))


def _forms() -> Iterator[Trial]:
    for base in ("released", "vllm", "runtime", "numbered", "stacks"):
        yield from (Trial(base, (), server) for server in SERVERS)
    for base in ("expanded", "foreign", "attention", "experts"):
        yield from (Trial(base, (), server) for server in WHOLE)


def _alone() -> Iterator[Trial]:
    for number, name in enumerate(MUTATIONS):
        yield Trial("released", (name,), "startup")
        if name not in FILES:
            others = [server for server in WHOLE if server != "startup"]
            yield Trial("released", (name,), others[number % len(others)])


_NUMBERED = (
    *("no-a-expert", "no-b-expert", "no-expert-1", "no-a-expert-gate", "no-b-expert-gate"),
    *("no-last-expert", "no-first-expert", "only-first-expert", "sink-numbered", "prefix-1"),
)


def _on_other_forms() -> Iterator[Trial]:
    for name in _NUMBERED:
        yield Trial("numbered", (name,), "startup")
        yield Trial("numbered", (name,), "shared")
    for name in ("copy-expert", "down-for-one", "three-experts", "inner-for-one", "no-down"):
        yield Trial("stacks", (name,), "startup")
        yield Trial("stacks", (name,), "later")
    for name in ("no-sink-gate", "sink-one-layer", "rslora", "targets-runtime", "embed"):
        yield Trial("vllm", (name,), "startup")
    for name in ("dense-split", "sink-numbered", "wrong-kind", "sink-stacks"):
        yield Trial("released", (name,), "no-sink")
        yield Trial("released", (name,), "targets-half")
    for name in ("embed", "targets-embed", "no-head", "router"):
        yield Trial("released", (name,), "later-no-head")
    for name in ("no-routed", "no-sink", "no-dense", "targets-attention"):
        yield Trial("attention", (name,), "default")


def _pairs(rng: random.Random, count: int) -> Iterator[Trial]:
    composable = [name for name in MUTATIONS if name not in FILES]
    silent = [name for name in CONFIGS if name.startswith(("alpha-p", "rslora", "targets-r"))]
    for number in range(count):
        base = rng.choice(("released", "released", "released", "vllm", "runtime", "numbered"))
        first = rng.choice(silent if number % 4 == 0 else composable)
        second = rng.choice(composable)
        if first != second:
            yield Trial(base, (first, second), rng.choice(WHOLE))


def write_trial_world(root: Path) -> Path:
    """Write the models that trials name and return the folder."""
    return write_world(root)
