"""What `inkling generate` was asked for, as values: adapters to load, prompts to run.

Torch is not imported here. What cannot be understood is an error before the model is loaded.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inkling_cli.checks.adapter import AdapterSubject, Consumer, check_adapter, make_subject
from inkling_cli.checks.finding import Finding, Severity
from inkling_runtime.adapter.adapter import read_adapter
from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.adapter.shown import shown_text
from inkling_runtime.adapter.site_pairs import SitePairs
from inkling_runtime.errors import InklingError

BASE = "base"
"""The name that means no adapter."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt: a text, chat messages or token ids."""

    label: str
    text: str | None = None
    messages: tuple[Mapping[str, Any], ...] | None = None
    ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """A prompt and the adapter that it runs with (None: the base model)."""

    prompt: Prompt
    adapter: str | None

    @property
    def heading(self) -> str:
        """What stands above the reply; a long prompt is cut."""
        return f"[{self.adapter or BASE}] {shown_text(self.prompt.label, 100)}"


@dataclass(frozen=True, slots=True)
class AdapterPlan:
    """An adapter to load: its name, what of it will be applied, what will not."""

    name: str
    subject: AdapterSubject
    applied: SitePairs
    findings: tuple[Finding, ...]


def parse_adapters(texts: Sequence[str]) -> dict[str, Path]:
    """Return names and folders of `--lora PATH` and `--lora NAME=PATH`.

    Raises:
        InklingError: a name is given twice or means the base model.
    """
    adapters: dict[str, Path] = {}
    for text in texts:
        name, separator, path = text.partition("=")
        if not separator:
            name, path = Path(text).name or text, text
        if name in adapters:
            raise InklingError(
                f"two adapters have the name `{name}`", "name them: `--lora NAME=PATH`"
            )
        if name == BASE or not name or not path:
            raise InklingError(f"`--lora {text}` names no adapter, expected `NAME=PATH`")
        adapters[name] = Path(path)
    return adapters


def plan_adapter(
    name: str, folder: Path, spec: ModelSpec, dialect: str | None, allow_partial: bool
) -> AdapterPlan:
    """Return what of an adapter will be applied.

    Raises:
        InklingError: a part would not be applied and `allow_partial` is off, or nothing would.
    """
    subject = make_subject(read_adapter(folder, dialect), spec)
    errors = tuple(
        finding
        for finding in check_adapter(subject, [Consumer.NATIVE])
        if finding.severity is Severity.ERROR
    )
    if errors and not allow_partial:
        more = f" (and {len(errors) - 1} more findings)" if len(errors) > 1 else ""
        raise InklingError(
            f"a part of `{folder}` would not be applied: {errors[0].message}{more}",
            f"`inkling check-adapter {folder} --engine native` shows all; "
            "`--allow-partial` runs the rest",
        )
    coverage = subject.coverage
    fitting = coverage.fitting if coverage is not None else ()
    applied = {site: subject.pairs[site] for site in fitting}
    if not applied:
        raise InklingError(f"no part of `{folder}` can be applied to this model")
    return AdapterPlan(name, subject, applied, errors)


def parse_prompts(
    texts: Sequence[str],
    chats: Sequence[str],
    system: str | None,
    messages: Path | None,
    ids: Sequence[str],
) -> list[Prompt]:
    """Return all prompts in the order text, chat, messages, token ids.

    Raises:
        InklingError: there is none, or one cannot be understood.
    """
    if system is not None and not chats:
        raise InklingError("`--system` needs a `--chat` to stand before")
    prompts = [Prompt(text, text=text) for text in texts]
    for chat in chats:
        first = [{"role": "system", "content": system}] if system is not None else []
        prompts.append(Prompt(chat, messages=(*first, {"role": "user", "content": chat})))
    if messages is not None:
        prompts.append(Prompt(str(messages), messages=_read_messages(messages)))
    prompts += [Prompt(text, ids=_parse_ids(text)) for text in ids]
    if not prompts:
        raise InklingError(
            "there is no prompt", "pass `--prompt TEXT`, `--chat TEXT` or `--prompt-ids IDS`"
        )
    return prompts


def _read_messages(path: Path) -> tuple[Mapping[str, Any], ...]:
    try:
        value = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InklingError(f"`{path}` cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise InklingError(f"`{path}` is not JSON: {error}") from error
    if not isinstance(value, list) or not all(isinstance(message, dict) for message in value):
        raise InklingError(f"`{path}` does not hold a list of messages")
    return tuple(value)


def _parse_ids(text: str) -> tuple[int, ...]:
    words = text.replace(",", " ").split()
    if not all(word.isdecimal() for word in words):
        raise InklingError(f"`--prompt-ids {text}` is not a list of token ids such as `3,4,5`")
    return tuple(int(word) for word in words)


def pair_up(prompts: Sequence[Prompt], adapters: Sequence[str], chosen: Sequence[str]) -> list[Run]:
    """Return which prompt runs with which adapter.

    One `--adapter` holds for all prompts, as many as prompts hold in turn. Without any, every
    prompt runs with every loaded adapter, or with the base model if none is loaded.

    Raises:
        InklingError: a chosen adapter is not loaded, or their number fits neither case.
    """
    for name in chosen:
        if name != BASE and name not in adapters:
            known = ", ".join(f"`{known}`" for known in [*adapters, BASE])
            raise InklingError(f"`--adapter {name}` is not loaded, expected one of {known}")
    if not chosen:
        return [Run(prompt, name) for prompt in prompts for name in (adapters or (None,))]
    if len(chosen) == 1:
        chosen = list(chosen) * len(prompts)
    if len(chosen) != len(prompts):
        raise InklingError(
            f"there are {len(chosen)} `--adapter` for {len(prompts)} prompts, "
            "expected one for all or one for each"
        )
    return [
        Run(prompt, None if name == BASE else name)
        for prompt, name in zip(prompts, chosen, strict=True)
    ]
