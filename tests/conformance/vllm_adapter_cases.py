"""Adapters under launches of vLLM for the engine itself to judge, module by module.

Deterministic: the same seed gives the same cases. An adapter is a start and changes by name, a
launch is options as a user writes them after `--`.
"""

import json
import random
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

from conformance.vllm_drafts import STARTS, Draft
from conformance.vllm_mutations import FURTHER, MUTATIONS
from inkling_cli.checks.effect import module_name

SEED = 5
SHARED = {"enable-moe-shared-loras": "true"}
MIXED = {"enable-mixed-moe-lora-format": "true"}


@dataclass(frozen=True)
class Setting:
    """A launch without its adapter: options without dashes, a model of the world, variables.

    `is_named` says whether the user names the adapter in `--lora-modules` as `oracle=FOLDER`. Else
    it is added for them, and one with packed experts is named as such.
    """

    flags: Mapping[str, str] = field(default_factory=dict)
    model: str = "model"
    env: Mapping[str, str] = field(default_factory=lambda: {"INKLING_MULTIMEM_AR": "0"})
    is_named: bool = False


def _targets(words: str, **flags: str) -> Setting:
    return Setting({**SHARED, **flags, "lora-target-modules": words})


SETTINGS: dict[str, Setting] = {
    "shared": Setting(SHARED),
    "plain": Setting(),
    "sharded": Setting({**SHARED, "fully-sharded-loras": "true"}),
    "sharded-plain": Setting({"fully-sharded-loras": "true"}),
    "targets-attention": _targets("qkvr wo_ud"),
    "targets-on-disk": _targets("wq_du wo_ud"),
    "targets-gate": _targets("gate qkvr"),
    "targets-half": _targets("gate_up_proj"),
    "targets-experts": _targets("experts"),
    "targets-stack": _targets("experts.w1 w13"),
    "targets-sink-slice": _targets("w1 w2"),
    "targets-head": _targets("lm_head"),
    "targets-head-and-logits": _targets("lm_head logits_processor"),
    "targets-path": _targets("model.layers.1.attn.wo_ud model.layers.2.attn.qkvr"),
    "targets-nothing": _targets("q_proj all-linear"),
    "targets-sharded": _targets("wo_ud experts", **{"fully-sharded-loras": "true"}),
    "targets-expert": Setting({"lora-target-modules": "experts.3.up_proj wo_ud"}),
    "rank-1": Setting({**SHARED, "max-lora-rank": "1"}),
    "rank-8": Setting({**SHARED, "max-lora-rank": "8"}),
    "rank-64": Setting({**SHARED, "max-lora-rank": "64"}),
    "no-variable": Setting(SHARED, env={}),
    "mixed": Setting(MIXED),
    "mixed-shared": Setting({**MIXED, **SHARED}),
    "mixed-named": Setting(MIXED, is_named=True),
    "text": Setting(SHARED, "text-model"),
    "text-plain": Setting({}, "text-model"),
    "text-mixed": Setting(MIXED, "text-model"),
    "text-mixed-shared": Setting({**MIXED, **SHARED}, "text-model"),
    "text-mixed-named": Setting(MIXED, "text-model", is_named=True),
    "no-dense": Setting(SHARED, "no-dense-model"),
    "transformers-config": Setting(SHARED, "hf-model"),
}
"""Launches by name."""


@dataclass(frozen=True)
class Case:
    """An adapter under a launch."""

    start: str
    changes: tuple[str, ...] = ()
    setting: str = "shared"

    @property
    def adapter(self) -> str:
        """The adapter's name."""
        return " + ".join((self.start, *self.changes))

    @property
    def id(self) -> str:
        """The name of the case."""
        return f"{self.adapter} | {self.setting}"


@cache
def draft_of_case(start: str, changes: tuple[str, ...]) -> Draft:
    """Return the adapter of a case."""
    draft = STARTS[start]
    for change in changes:
        draft = (MUTATIONS | FURTHER)[change](draft)
    return draft


def modules_of(draft: Draft) -> list[str]:
    """Return the modules of an adapter as on disk, sorted."""
    return sorted({module_name(tensor) for tensor in draft.tensors})


def is_packed(draft: Draft) -> bool:
    """Return whether an adapter has experts as PEFT packs them."""
    return any(module.endswith(".mlp.experts") for module in modules_of(draft))


def words_of(case: Case) -> list[str]:
    """Return the options of a case as a user writes them; `{adapter}` stands for its folder."""
    setting = SETTINGS[case.setting]
    words = []
    for key, value in setting.flags.items():
        words += [f"--{key}", *(() if value == "true" else shlex.split(value))]
    if setting.is_named:
        words += ["--lora-modules", "oracle={adapter}"]
    elif is_packed(draft_of_case(case.start, case.changes)):
        entry = {"name": "oracle", "path": "{adapter}", "is_3d_lora_weight": True}
        words += ["--lora-modules", json.dumps(entry)]
    return words or ["--enable-lora"]


def generate(seed: int = SEED, pairs: int = 130) -> list[Case]:
    """Return all cases with one change, and a number of those with two, without doubles."""
    cases = dict.fromkeys((*_starts(), *_changes(), *_settings()))
    chosen = random.Random(seed)
    names = [name for name in MUTATIONS if not _spoils(name)]
    while pairs:
        start = chosen.choice(["vllm", "vllm", "released", "one-by-one"])
        settings = ["shared", *list(SETTINGS)] if start != "one-by-one" else ["plain", "text-plain"]
        case = Case(start, tuple(chosen.sample(names, 2)), chosen.choice(settings))
        if case not in cases:
            cases[case] = None
            pairs -= 1
    return list(cases)


def _starts() -> Iterator[Case]:
    for start in STARTS:
        yield Case(start, setting=_natural(start))
    for start in ("released", "one-by-one", "attention"):
        yield Case(start, setting="plain" if _natural(start) == "shared" else "shared")


def _natural(start: str) -> str:
    if start.startswith("packed"):
        return "text-mixed"
    return "plain" if "numbered" in start or start == "one-by-one" else "shared"


def _changes() -> Iterator[Case]:
    for change in (*MUTATIONS, *FURTHER):
        yield Case("vllm", (change,))
    yield Case("vllm", ("flat-a", "typo"))
    for change in ("short-one-by-one", "no-down-of-experts", "narrow-hidden", "rank-4", "wrapped"):
        yield Case("one-by-one", (change,), "plain")


def _settings() -> Iterator[Case]:
    for setting in SETTINGS:
        for start in ("vllm", "released", "one-by-one", "packed-alone", "shapes packed"):
            yield Case(start, setting=setting)


def _spoils(change: str) -> bool:
    return MUTATIONS[change](STARTS["vllm"]).spoil is not None
