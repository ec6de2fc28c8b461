"""Remedies in the user's own words: the command with the changed option, or the file's key."""

import shlex
from collections.abc import Mapping, Sequence

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Change, Location
from inkling_cli.checks.launch.adapter_facts import AdapterFacts
from inkling_cli.checks.launch.launch import Launch, LaunchForm
from inkling_cli.checks.launch.parse.arguments import is_unknown
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.shell_word import shell_word
from inkling_cli.checks.stage import Stage
from inkling_runtime.adapter.adapter import Adapter
from inkling_runtime.adapter.lora_config import beyond_plain_lora
from inkling_runtime.adapter.sites import HEAD_SITE, SiteKind
from inkling_runtime.errors import format_names

Changes = Mapping[str, str]
"""Option or variable → new value; empty for a switch."""

_ATTENTION = (SiteKind.Q, SiteKind.K, SiteKind.V, SiteKind.R)
"""SGLang takes them together."""


def launch_defect(
    launch: Launch,
    message: str,
    location: Location,
    *,
    options: Changes | None = None,
    variables: Changes | None = None,
    remove: Sequence[str] = (),
    stage: Stage | None = None,
) -> Defect:
    """Return a defect of a launch that a change of its options or variables would remedy."""
    options, variables = options or {}, variables or {}
    fix: dict[str, str | None] = {
        **{launch.key_of(name): value or "true" for name, value in options.items()},
        **variables,
        **dict.fromkeys(map(launch.key_of, remove)),
    }
    change = Change(options, variables, tuple(remove))
    remedy = advise(launch, options, variables, remove)
    return Defect(message, remedy, location, fix, change, stage)


def advise_conversion(
    facts: AdapterFacts,
    engine: Engine,
    otherwise: str | None = None,
    *,
    needs_model: bool = False,
    option: str = "",
) -> str:
    """Return the command that makes an adapter right for an engine.

    Args:
        facts: the adapter.
        engine: that is to apply it.
        otherwise: what to say of an adapter that a conversion refuses.
        needs_model: whether the conversion asks for the base model's sizes.
        option: a further one of the conversion, as `--expand`.
    """
    adapter, folder = facts.adapter, shell_word(facts.folder)
    if adapter.unknown or adapter.problems:
        return otherwise or f"`inkling inspect {folder}` shows what is not understood"
    if beyond_plain_lora(adapter.config):
        return "train a plain LoRA adapter, or merge this one into the base model"
    model = " --model MODEL" if needs_model or _needs_sizes(adapter, engine) else ""
    further = f" {option}" if option else ""
    return f"`inkling convert-adapter {folder} --to {engine.value}{model}{further} -o OUT`"


def _needs_sizes(adapter: Adapter, engine: Engine) -> bool:
    """Return whether a conversion has to complete q, k, v and r, or to cut the padded head."""
    if engine is not Engine.SGLANG:
        return False
    sites = {site for module in adapter.modules for site in module.sites}
    attention = {site for site in sites if site.kind in _ATTENTION}
    layers = {site.layer for site in attention}
    is_padded = adapter.dialect.written_as in ("peft", "sglang") and HEAD_SITE in sites
    return is_padded or len(attention) < len(_ATTENTION) * len(layers)


def advise(launch: Launch, options: Changes, variables: Changes, remove: Sequence[str]) -> str:
    """Return how to change a launch, phrased in the form in which it was written."""
    if launch.form is LaunchForm.CONFIG:
        return _advise_config(launch, options, variables, remove)
    if launch.form not in (LaunchForm.COMMAND, LaunchForm.SCRIPT):
        return _advise_container(launch, options, variables, remove)
    words = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    words += launch.program
    if launch.model and launch.use(launch.engine.model_option) is None:
        words.append(launch.model if is_unknown(launch.model) else shlex.quote(launch.model))
    words += ["…", *(f"{name} {value}".rstrip() for name, value in options.items())]
    without = f" without {_quoted(remove)}" if remove else ""
    return f"`{' '.join(words)}`{without}"


def _advise_config(
    launch: Launch, options: Changes, variables: Changes, remove: Sequence[str]
) -> str:
    parts = []
    if options:
        entries = [f"{launch.key_of(name)}: {value or 'true'}" for name, value in options.items()]
        parts.append(f"set {_quoted(entries)}")
    if variables:
        pairs = [f"{name}={value}" for name, value in variables.items()]
        parts.append(f"start the server with {_quoted(pairs)} in its environment")
    if remove:
        parts.append(f"remove {_quoted([launch.key_of(name) for name in remove])}")
    return " and ".join(parts)


def _advise_container(
    launch: Launch, options: Changes, variables: Changes, remove: Sequence[str]
) -> str:
    """Phrase a change of a container, whose words and variables stand apart, or of an env file."""
    where = f" of `{launch.container}`" if launch.container else ""
    parts = []
    if options:
        words = [f"{name} {value}".rstrip() for name, value in options.items()]
        parts.append(f"give {_quoted(words)} in the command{where}")
    if variables:
        pairs = [f"{name}={value}" for name, value in variables.items()]
        parts.append(f"set {_quoted(pairs)}" + (f" in the environment{where}" if where else ""))
    if remove:
        parts.append(f"leave {_quoted(remove)} out of the command{where}")
    return " and ".join(parts)


def _quoted(names: Sequence[str]) -> str:
    return " and ".join(f"`{name}`" for name in names)


def format_adapters(adapters: Sequence[AdapterFacts]) -> str:
    """Return adapters by name: ``adapters `a`, `b`, `c` and 2 more``."""
    noun = "adapter" if len(adapters) == 1 else "adapters"
    return f"{noun} {format_names([adapter.name for adapter in adapters])}"
