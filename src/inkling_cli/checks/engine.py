"""The two serving engines whose launches are judged, and their versions as data.

To describe a further version, add it to `_VERSIONS`, bound the rules that changed by `since` and
`before`, and mark the words of the option tables that came or went (`launch/options/table.py`).
"""

import re
from enum import StrEnum
from itertools import zip_longest


class Engine(StrEnum):
    """An engine. The value is what `--engine` takes."""

    VLLM = "vllm"
    SGLANG = "sglang"

    @property
    def display_name(self) -> str:
        """The engine's name as its authors write it."""
        return {Engine.VLLM: "vLLM", Engine.SGLANG: "SGLang"}[self]

    @property
    def known_versions(self) -> tuple[str, ...]:
        """The versions whose behaviour the rules were taken from and observed on, oldest first."""
        return _VERSIONS[self]

    @property
    def known_version(self) -> str:
        """The newest version that is known."""
        return self.known_versions[-1]

    def described_version(self, version: str | None) -> str:
        """Return the known version that describes another best: the newest that is not newer."""
        if version is None or not parse_version(version):
            return self.known_version
        older = [v for v in self.known_versions if _is_at_most(v, version)]
        return older[-1] if older else self.known_versions[0]

    @property
    def adapters_option(self) -> str:
        """The option that names adapters to load at start-up."""
        return {Engine.VLLM: "--lora-modules", Engine.SGLANG: "--lora-paths"}[self]

    @property
    def model_option(self) -> str:
        """The option that names the model, where it is not the first argument."""
        return {Engine.VLLM: "--model", Engine.SGLANG: "--model-path"}[self]


_VERSIONS = {Engine.VLLM: ("0.33.0",), Engine.SGLANG: ("0.5.23",)}


def parse_version(text: str) -> tuple[int, ...]:
    """Return the numbers of a version's release: `v0.5.23rc1` → (0, 5, 23); () if it has none."""
    release = re.match(r"v?(\d+(?:\.\d+)*)", text)
    return tuple(int(part) for part in release[1].split(".")) if release else ()


def holds_between(version: str | None, since: str | None, before: str | None) -> bool:
    """Return whether a version is at or after `since` and ahead of `before`; None is the newest."""
    if version is None:
        return before is None
    if since is not None and not _is_at_most(since, version):
        return False
    return before is None or not _is_at_most(before, version)


def _is_at_most(low: str, high: str) -> bool:
    """Return whether `low` is not newer than `high`; `0.33` is `0.33.0`."""
    pairs = zip_longest(parse_version(low), parse_version(high), fillvalue=0)
    return next((a < b for a, b in pairs if a != b), True)
