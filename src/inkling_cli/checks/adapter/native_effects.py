"""What this tool's own runtime does: it applies an adapter whole, or refuses it."""

from collections import defaultdict
from collections.abc import Iterator

from inkling_cli.checks.adapter.subject import AdapterSubject
from inkling_cli.checks.effect import Effect, Fate, module_name
from inkling_runtime.adapter.lora_config import beyond_plain_lora

NOT_UNDERSTOOD = "not understood"
UNSOUND = "unsound"
NO_PLACE = "no place"
MORE_THAN_LORA = "more than LoRA"
BASE_COPY = "copy of base weights"


def native_effects(subject: AdapterSubject) -> tuple[Effect, ...]:
    """Return the effect of every module, and of tensors that belong to none."""
    reasons = _reasons(subject)
    fate = Fate.REFUSED if reasons else Fate.APPLIED
    if fate is Fate.APPLIED and subject.spec is None:
        fate = Fate.NOT_CHECKED
    names = [module.name for module in subject.adapter.modules]
    names += map(module_name, subject.adapter.unknown)
    effects = [Effect(name, fate, *reasons.get(name, ("", ""))) for name in dict.fromkeys(names)]
    left = Fate.REFUSED if fate is Fate.REFUSED else Fate.DROPPED
    effects += [
        Effect(name, left, BASE_COPY, "a copy of base weights", is_meant=False)
        for name in subject.adapter.base_copies
    ]
    return tuple(effects)


def _reasons(subject: AdapterSubject) -> dict[str, tuple[str, str]]:
    """Return module or tensor → the cause of its refusal and the reason in words."""
    adapter = subject.adapter
    unknown = f"the {adapter.dialect.name} dialect has no such name"
    found = dict.fromkeys(map(module_name, adapter.unknown), (NOT_UNDERSTOOD, unknown))
    for problem in adapter.problems:
        found.setdefault(problem.module, (UNSOUND, problem.message))
    for name, message in _misplaced(subject):
        found.setdefault(name, (NO_PLACE, message))
    wholly = [(UNSOUND, subject.undecodable)] if subject.undecodable else []
    beyond = beyond_plain_lora(adapter.config)
    wholly += [(MORE_THAN_LORA, f"the config has `{setting}`") for setting in beyond]
    for module in adapter.modules if wholly else ():
        found.setdefault(module.name, wholly[0])
    return found


def _misplaced(subject: AdapterSubject) -> Iterator[tuple[str, str]]:
    """Yield modules that have no place in the base model, or do not fit it, and why."""
    coverage = subject.coverage
    if coverage is None:
        return
    names = defaultdict(list)
    for module in subject.adapter.modules:
        for site in module.sites:
            names[site].append(module.name)
    for site in coverage.surplus:
        yield from ((name, f"the base model has no `{site}`") for name in names[site])
    for misfit in coverage.misfits:
        yield from ((name, misfit.message) for name in names[misfit.site])
