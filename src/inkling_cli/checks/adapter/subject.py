"""What the adapter rules look at: the parsed adapter, its factors by site, the base model."""

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

from inkling_cli.checks.adapter.naming import Unknown, sort_unknown
from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Finding, Location, sort_findings
from inkling_cli.checks.rule import Registry
from inkling_runtime.adapter.adapter import Adapter, read_adapter
from inkling_runtime.adapter.coverage import Coverage, compare
from inkling_runtime.adapter.lora_config import CONFIG_NAME
from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.adapter.site_pairs import SitePairs, gather_sound_pairs
from inkling_runtime.adapter.values import AdapterValues


class Consumer(StrEnum):
    """What applies an adapter. The value is what `--engine` takes."""

    VLLM = "vllm"
    SGLANG = "sglang"
    PEFT = "peft"
    NATIVE = "native"

    @property
    def known_version(self) -> str | None:
        """The version whose behaviour the rules were taken from and observed on."""
        if self in (Consumer.VLLM, Consumer.SGLANG):
            return Engine(self.value).known_version
        return "0.21.2" if self is Consumer.PEFT else None

    @property
    def display_name(self) -> str:
        """The consumer in words, without a version."""
        if self is Consumer.NATIVE:
            return "inkling generate"
        return "PEFT" if self is Consumer.PEFT else Engine(self.value).display_name


@dataclass(frozen=True, slots=True, eq=False)
class AdapterSubject:
    """An adapter and, where given, the base model it is meant for; equal to itself only.

    Attributes:
        adapter: as it was parsed.
        pairs: what is sound of it.
        undecodable: why the sound modules still have no meaning (an expert that is missing, a
            width that only the base model tells); None where they have one.
        spec: the base model's sizes; None where they are not known.
        coverage: the adapter against them.
        unknown: the tensors that the dialect does not have, sorted by what they are.
        values: what was read of its numbers, where that was asked for.
    """

    adapter: Adapter
    pairs: SitePairs
    undecodable: str | None
    spec: ModelSpec | None
    coverage: Coverage | None
    unknown: Unknown
    values: AdapterValues | None = None

    @property
    def path(self) -> str:
        """The adapter's folder, for messages."""
        return str(self.adapter.path)

    def at(self, key: str | None = None) -> Location:
        """Return a place in its weights: a tensor, a module or a site."""
        return Location(str(self.adapter.file.path), key=key)

    def in_config(self, key: str | None = None) -> Location:
        """Return a place in its config."""
        return Location(str(self.adapter.path / CONFIG_NAME), key=key)


ADAPTER_RULES: Registry[AdapterSubject] = Registry()


def read_subject(
    folder: Path, spec: ModelSpec | None, dialect: str | None = None
) -> AdapterSubject:
    """Return the subject for a folder.

    Raises:
        InklingError: the files cannot be read at all.
    """
    return make_subject(read_adapter(folder, dialect), spec)


@lru_cache(maxsize=16)
def make_subject(adapter: Adapter, spec: ModelSpec | None) -> AdapterSubject:
    """Return the subject for a parsed adapter; each engine that is judged asks for the same."""
    pairs, undecodable = gather_sound_pairs(adapter, spec)
    coverage = compare(pairs, spec) if spec is not None else None
    return AdapterSubject(adapter, pairs, undecodable, spec, coverage, sort_unknown(adapter))


@lru_cache(maxsize=16)
def check_itself(subject: AdapterSubject) -> tuple[Finding, ...]:
    """Return the findings that concern every consumer."""
    return tuple(ADAPTER_RULES.check_for(subject, {}))


def check_adapter(subject: AdapterSubject, consumers: list[Consumer]) -> tuple[Finding, ...]:
    """Return the findings for these consumers; what concerns all of them stands once."""
    versions = {consumer.value: consumer.known_version for consumer in consumers}
    return sort_findings(ADAPTER_RULES.check_for(subject, versions))
