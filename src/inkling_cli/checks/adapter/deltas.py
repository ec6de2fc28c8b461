"""Rules about what an adapter's modules add, s·B·A. Silent where the numbers were not read."""

from collections.abc import Iterator
from math import prod, sqrt
from statistics import median

from inkling_cli.checks.adapter.subject import ADAPTER_RULES, AdapterSubject
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.rule import Defect
from inkling_runtime.adapter.sites import Site, SiteKind
from inkling_runtime.errors import format_names

_FAR = 1000
"""So many times the median of its kind, a delta is absurd: layers of a trained adapter lie within
a factor of ten or so."""

_LARGEST_CHANGE = 1000
"""Root mean square of a delta's elements. Weights of a model are around 0.02."""

_FEWEST = 3
"""Layers from which on a kind's norms are compared."""


@ADAPTER_RULES.rule("VAL002", "no-effect", Severity.INFO)
def check_no_effect(subject: AdapterSubject) -> Iterator[Defect]:
    """An adapter that changes nothing.

    *What it checks*: whether B·A is zero in every module, as it is before the first training step.

    *Why it matters*: such an adapter is valid and every engine serves it, but its answers are
    those of the base model. That is right for a test, and a mistake for anything else.

    *How to fix*: export the trained adapter, if this is not meant.
    """
    values = subject.values
    if values is None or not values.sites or not _are_all_zero(subject):
        return
    factor = "lora_B" if _is_zero(subject, b=True) else "lora_A or lora_B"
    yield Defect(
        f"{factor} is zero in all {len(values.sites)} places: the adapter is valid and changes "
        "nothing",
        "if this is not meant, export the trained adapter",
        subject.at(),
    )


def _are_all_zero(subject: AdapterSubject) -> bool:
    values = subject.values
    return values is not None and all(delta.is_zero for delta in values.sites.values())


def _is_zero(subject: AdapterSubject, *, b: bool) -> bool:
    """Return whether all B (or all A) of the modules are zero."""
    assert subject.values is not None
    factors = [module.b if b else module.a for module in subject.adapter.modules]
    tensors = subject.values.tensors
    return all(f is not None and f.name in tensors and tensors[f.name].is_zero for f in factors)


@ADAPTER_RULES.rule("VAL003", "zero-modules", Severity.INFO)
def check_zero_modules(subject: AdapterSubject) -> Iterator[Defect]:
    """Modules or experts without effect in an adapter that has one.

    *What it checks*: where B·A is exactly zero, for a whole module or for some of its experts.

    *Why it matters*: experts that saw no token in training stay as they were, which is sound. A
    whole module that stays so was often frozen by mistake, or lost in an export.

    *How to fix*: leave such modules out of the file, or train them.
    """
    values = subject.values
    if values is None or _are_all_zero(subject):
        return
    whole = [str(site) for site, delta in values.sites.items() if delta.is_zero]
    if whole:
        yield Defect(
            f"{len(whole)} of {len(values.sites)} adapted places have a delta of zero: "
            f"{format_names(whole)}",
            "leave them out of the adapter, or train them",
            subject.at(whole[0]),
        )
    parts = {site: d for site, d in values.sites.items() if d.num_zero and not d.is_zero}
    if parts:
        zero = sum(delta.num_zero for delta in parts.values())
        experts = sum(len(delta.expert_norms) for delta in values.sites.values())
        yield Defect(
            f"{zero:,} of {experts:,} expert matrices have a delta of zero, in "
            f"{len(parts)} modules: {format_names([str(site) for site in parts])}",
            "experts that see no token in training stay so",
            subject.at(str(next(iter(parts)))),
        )


@ADAPTER_RULES.rule("VAL005", "absurd-norm", Severity.WARNING)
def check_absurd_norm(subject: AdapterSubject) -> Iterator[Defect]:
    """A delta that is far too large.

    *What it checks*: the Frobenius norm of s·B·A against the median of the same kind of module
    (1000 times, from three layers on), and the root mean square of its elements against what a
    weight can be (1000).

    *Why it matters*: a delta that outweighs the base weights leaves nothing of the model. The
    reason is a training that diverged, a wrong alpha, or a layer that was scaled twice.

    *How to fix*: compare alpha and rank with the training's, or take an earlier checkpoint.
    """
    values = subject.values
    if values is None:
        return
    medians = _medians(subject)
    for site, delta in values.sites.items():
        usual = medians.get(site.kind)
        change = delta.norm / sqrt(_num_elements(subject, site))
        if change > _LARGEST_CHANGE:
            what = f"a root mean square of {change:.3g} by element; weights are around 0.02"
        elif usual is not None and delta.norm > _FAR * usual:
            what = f"the median of its kind is {usual:.3g}"
        else:
            continue
        yield Defect(
            f"the delta of `{site}` has the norm {delta.norm:.3g}, {what}",
            "compare alpha and rank with the training's, or take an earlier checkpoint",
            subject.at(str(site)),
        )


def _medians(subject: AdapterSubject) -> dict[SiteKind, float]:
    return {kind: median(norms) for kind, norms in _norms(subject).items() if len(norms) >= _FEWEST}


def _norms(subject: AdapterSubject) -> dict[SiteKind, list[float]]:
    """Return the norms of each kind of module in all layers where it is not zero."""
    assert subject.values is not None
    norms: dict[SiteKind, list[float]] = {}
    for site, delta in subject.values.sites.items():
        if delta.norm > 0:
            norms.setdefault(site.kind, []).append(delta.norm)
    return norms


def _num_elements(subject: AdapterSubject, site: Site) -> int:
    """Return the size of ΔW; of experts side by side, that of the whole matrix."""
    pair = subject.pairs[site]
    return prod((max(pair.experts, 1), pair.a.shape[-1], pair.b.shape[-2]))


@ADAPTER_RULES.rule("VAL009", "repeated-norms", Severity.WARNING)
def check_repeated_norms(subject: AdapterSubject) -> Iterator[Defect]:
    """Deltas of one and the same norm in every layer.

    *What it checks*: the norms of each kind of module, from three layers on.

    *Why it matters*: layers that are trained differ. The same norm everywhere means that one
    layer was written in place of all, or that the numbers are placeholders.

    *How to fix*: export the adapter again.
    """
    if subject.values is None:
        return
    repeated = {
        kind.value: norms
        for kind, norms in _norms(subject).items()
        if len(norms) >= _FEWEST and len(set(norms)) == 1
    }
    if repeated:
        name, norms = next(iter(repeated.items()))
        more = f" (and {len(repeated) - 1} more kinds of modules)" if len(repeated) > 1 else ""
        yield Defect(
            f"the delta of `{name}` has the norm {norms[0]:.6g} in all {len(norms)} layers that "
            f"have one, expected different norms{more}",
            "export the adapter again",
            subject.at(name),
        )
