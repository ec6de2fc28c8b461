"""Rules over an adapter's config that was read, whoever consumes it."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from inkling_cli.checks.adapter.subject import ADAPTER_RULES, AdapterSubject
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.rule import Defect
from inkling_runtime.adapter.lora_config import beyond_plain_lora
from inkling_runtime.adapter.pattern_table import PatternTable
from inkling_runtime.adapter.regex_syntax import PatternError
from inkling_runtime.errors import format_names

_WARNING = Severity.WARNING


@ADAPTER_RULES.rule("ADP008", "more-than-plain-lora", Severity.ERROR)
def check_more_than_plain_lora(subject: AdapterSubject) -> Iterator[Defect]:
    """Config settings with which the effect is more than s·B·A.

    *What it checks*: DoRA, biases, fully trained modules, added tokens and the like in
    adapter_config.json.

    *Why it matters*: vLLM refuses most of them, SGLang ignores most of them without a message,
    and this runtime does not apply them.

    *How to fix*: train a plain LoRA adapter, or merge this one into the base model.
    """
    for setting in beyond_plain_lora(subject.adapter.config):
        key = setting.split(" ", 1)[0]
        yield Defect(
            f"adapter_config.json has `{setting}`, expected a plain LoRA adapter",
            "train without it, or merge the adapter into the base model",
            subject.in_config(key),
        )


@ADAPTER_RULES.rule("ADP012", "scaled-by-zero", Severity.ERROR)
def check_scaled_by_zero(subject: AdapterSubject) -> Iterator[Defect]:
    """An alpha of 0, with which a module has no effect.

    *What it checks*: `lora_alpha` and the values of `alpha_pattern` that count for a module. Where
    only some modules are scaled by 0 it is a warning.

    *Why it matters*: every delta is alpha / r times B·A. Engines load the adapter, apply it times
    0 and answer as the base model does.

    *How to fix*: write the alpha that the adapter was trained with.
    """
    modules = subject.adapter.modules
    still = [module.name for module in modules if module.scaling == 0]
    if not still:
        return
    is_whole = len(still) == len(modules)
    if is_whole and subject.adapter.config.alpha == 0:
        key, message = "lora_alpha", "lora_alpha is 0: every module is scaled by 0"
    else:
        key = "lora_alpha" if subject.adapter.config.alpha == 0 else "alpha_pattern"
        message = f"{key} scales {len(still)} of {len(modules)} modules by 0: {format_names(still)}"
    yield Defect(
        f"{message}, {'the adapter has' if is_whole else 'they have'} no effect",
        "write the alpha that the adapter was trained with",
        subject.in_config(key),
        severity=None if is_whole else _WARNING,
    )


@ADAPTER_RULES.rule("ADP013", "pattern-without-match", _WARNING)
def check_pattern_without_match(subject: AdapterSubject) -> Iterator[Defect]:
    """A key of `rank_pattern` or `alpha_pattern` that matches no module.

    *What it checks*: each key, as a regular expression for the end of a module's name, against
    the modules of the file.

    *Why it matters*: the module that was meant gets `r` and `lora_alpha`, and so another scale.

    *How to fix*: correct the key, or remove it.
    """
    if subject.adapter.unknown:
        return
    for setting, table in _patterns(subject).items():
        lost = list(_never_matched(table, _table_names(subject)))
        if lost:
            match = "matches" if len(lost) == 1 else "match"
            yield Defect(
                f"`{setting}` has {format_names(lost)}, which {match} none of "
                f"{len(subject.adapter.modules)} modules",
                "correct the key, or remove it; a key is matched with the end of a module's name",
                subject.in_config(setting),
            )


@ADAPTER_RULES.rule("ADP014", "contradictory-patterns", _WARNING)
def check_contradictory_patterns(subject: AdapterSubject) -> Iterator[Defect]:
    """Two keys of a pattern that give one module different values, so that their order decides.

    *What it checks*: whether a module gets another value once the keys of `rank_pattern` or
    `alpha_pattern` are sorted, and whether a key counts for no module because one before it
    matches them all and says something else.

    *Why it matters*: the first key in the file counts. PEFT sorts the keys when it saves, so that
    after loading and saving another one may count: a rank then no longer fits, an alpha changes
    the effect without a message.

    *How to fix*: keep one key for each module.
    """
    for setting, table in _patterns(subject).items():
        found: dict[tuple[str, str], list[str]] = defaultdict(list)
        for module, first, other in _rivals(table, _table_names(subject)):
            found[first, other].append(module)
        for (first, other), modules in found.items():
            yield Defect(
                f"`{setting}` gives {format_names(modules)} {table[first]} by `{first}` and "
                f"{table[other]} by `{other}`; the first in the file counts",
                "keep one key for each module: PEFT sorts them when it saves",
                subject.in_config(setting),
            )


@ADAPTER_RULES.rule("ADP015", "negative-alpha", _WARNING)
def check_negative_alpha(subject: AdapterSubject) -> Iterator[Defect]:
    """An alpha below 0, with which deltas are subtracted.

    *What it checks*: `lora_alpha` and the values of `alpha_pattern`.

    *Why it matters*: the adapter does the opposite of what it was trained for.

    *How to fix*: write the alpha that the adapter was trained with, if this is not meant.
    """
    config = subject.adapter.config
    found = [("lora_alpha", config.alpha)] if config.alpha < 0 else []
    found += [("alpha_pattern", v) for v in config.alpha_pattern.values() if v < 0][:1]
    for key, value in found:
        yield Defect(
            f"{key} has {value:g}: the deltas are subtracted, expected a positive number",
            "write the alpha that the adapter was trained with, if this is not meant",
            subject.in_config(key),
        )


def _patterns(subject: AdapterSubject) -> dict[str, PatternTable[Any]]:
    config = subject.adapter.config
    found: dict[str, PatternTable[Any]] = {
        "rank_pattern": config.rank_pattern,
        "alpha_pattern": config.alpha_pattern,
    }
    return {setting: table for setting, table in found.items() if table}


def _table_names(subject: AdapterSubject) -> list[str]:
    return [module.table_name for module in subject.adapter.modules]


def _never_matched(table: PatternTable[Any], modules: Sequence[str]) -> Iterable[str]:
    """Return the keys that match no module, in the order of the file.

    A key behind others is found once these are taken away, up to a depth that no real config has.
    """
    left = dict(table)
    for _ in range(_DEPTH):
        current = PatternTable(left)
        found = {_find(current, module) for module in modules} & left.keys()
        if not found:
            return left
        left = {key: value for key, value in left.items() if key not in found}
    return ()


_DEPTH = 8


def _rivals(table: PatternTable[Any], modules: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield modules with the key that counts and one that says something else and may count."""
    firsts = {module: _find(table, module) for module in modules}
    as_saved = PatternTable({key: table[key] for key in sorted(table)})
    unused = set(table) - set(firsts.values())
    hidden = PatternTable({key: value for key, value in table.items() if key in unused})
    for module, first in firsts.items():
        for others in (as_saved, hidden) if first is not None else ():
            other = _find(others, module)
            if first is not None and other is not None and table[other] != table[first]:
                yield module, first, other
                break


def _find(table: PatternTable[Any], module: str) -> str | None:
    """Return the key that counts for a module, or None; also where that takes too long to tell."""
    try:
        return table.find_key(module)
    except PatternError:
        return None
