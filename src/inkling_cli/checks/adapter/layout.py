"""Rules over what an adapter has and lacks, and how its experts are stored, on any model."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from inkling_cli.checks.adapter.subject import ADAPTER_RULES, AdapterSubject
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.shell_word import shell_word
from inkling_runtime.adapter.moves import Read
from inkling_runtime.adapter.pairs import Form
from inkling_runtime.adapter.safetensors_file import TensorInfo
from inkling_runtime.adapter.sites import Group, Site, SiteKind
from inkling_runtime.errors import format_count, format_names

_TOGETHER: tuple[tuple[SiteKind, ...], ...] = (
    (SiteKind.Q, SiteKind.K, SiteKind.V, SiteKind.R),
    (SiteKind.DENSE_GATE, SiteKind.DENSE_UP, SiteKind.DENSE_DOWN),
    (SiteKind.ROUTED_GATE, SiteKind.ROUTED_UP, SiteKind.ROUTED_DOWN),
    (SiteKind.SHARED_GATE, SiteKind.SHARED_UP, SiteKind.SHARED_DOWN),
)
"""Kinds that trainers of the released schema adapt together, or not at all."""

Layers = Mapping[int, set[SiteKind]]


@ADAPTER_RULES.rule("ADP011", "incomplete-group", Severity.WARNING)
def check_incomplete_group(subject: AdapterSubject) -> Iterator[Defect]:
    """Modules that are missing where others like them are there.

    *What it checks*: that a layer has all kinds of modules that other layers have in the same
    group; that no layer is left out between others; and, but for names of transformers, which
    people choose one by one, that q, k, v and r, and the parts of an MLP, are there together. A
    group may be absent as a whole.

    *Why it matters*: trainers adapt them together, so that a gap is mostly a file that lost
    something. Without r SGLang fails at the first use of q, k and v, without w2 it drops the
    experts and vLLM refuses the adapter.

    *How to fix*: export the adapter again; if the module was never trained, add it with zeros.
    """
    if _has_other_reasons(subject):
        return
    gaps: list[Site] = []
    for group, layers in _layers_by_group(subject).items():
        if group is Group.HEAD:
            continue
        present = set().union(*layers.values())
        between = dict.fromkeys(_left_out(subject, group, layers), frozenset[SiteKind]())
        for layer, kinds in {**layers, **between}.items():
            gaps += [Site(layer, kind) for kind in present - kinds]
        if subject.adapter.dialect.written_as != "peft":
            yield from _missing_kinds(subject, present)
    if gaps:
        yield _gap(subject, [str(site) for site in sorted(gaps)])


def _has_other_reasons(subject: AdapterSubject) -> bool:
    """Return whether what is missing is somewhere else, which other rules tell, or chosen."""
    coverage = subject.coverage
    is_elsewhere = subject.adapter.unknown or (coverage is not None and coverage.surplus)
    return bool(is_elsewhere) or bool(subject.adapter.config.values.get("layers_to_transform"))


def _layers_by_group(subject: AdapterSubject) -> dict[Group, Layers]:
    """Return group → layer → the kinds that are adapted there."""
    kinds_in: dict[int, set[SiteKind]] = defaultdict(set)
    for module in subject.adapter.modules:
        kinds_in[module.parsed.layer].update(module.parsed.row.kinds)
    found: dict[Group, dict[int, set[SiteKind]]] = defaultdict(lambda: defaultdict(set))
    for layer, kinds in kinds_in.items():
        for kind in kinds:
            found[kind.group][layer].add(kind)
    return {group: found[group] for group in Group if group in found}


def _left_out(subject: AdapterSubject, group: Group, layers: Layers) -> list[int]:
    """Return layers without any module of a group between two that have some."""
    between = range(min(layers), max(layers))
    if subject.spec is not None:
        there = {site.layer for site in subject.spec.sites() if site.kind.group is group}
        return [layer for layer in between if layer in there and layer not in layers]
    return [layer for layer in between if layer not in layers]


def _missing_kinds(subject: AdapterSubject, present: set[SiteKind]) -> Iterator[Defect]:
    for kinds in _TOGETHER:
        missing = [kind for kind in kinds if kind not in present]
        if missing and len(missing) < len(kinds):
            names = format_names([kind.value for kind in missing])
            others = format_names([kind.value for kind in kinds if kind in present])
            yield Defect(
                f"no layer has {names}, though there are {others}; they are trained together",
                _REMEDY,
                subject.at(),
            )


_REMEDY = "export the adapter again, or add what was never trained with zeros"


def _gap(subject: AdapterSubject, names: Sequence[str]) -> Defect:
    verb = "is" if len(names) == 1 else "are"
    return Defect(
        f"{format_count(len(names), 'module')} {verb} missing where other layers have such: "
        f"{format_names(names)}",
        _REMEDY,
        subject.at(names[0]),
    )


@ADAPTER_RULES.rule("ADP019", "expert-layouts-mixed", Severity.WARNING)
def check_expert_layouts_mixed(subject: AdapterSubject) -> Iterator[Defect]:
    """Routed experts of which some store the hidden side once and others for each expert.

    *What it checks*: whether w1, w3 and w2 of all layers have the same layout: the factor at the
    hidden side stored once for all experts (shared-outer), or one for each.

    *Why it matters*: engines hold one layout for all. The other part is refused, or all experts
    get the factor of the first.

    *How to fix*: store them alike: `inkling convert-adapter` writes a form that the engine applies.
    """
    shared: dict[bool, list[str]] = {True: [], False: []}
    for site, pair in subject.pairs.items():
        if site.kind.group is Group.ROUTED and pair.form is Form.STACK:
            shared[pair.is_shared_outer].append(str(site))
    if shared[True] and shared[False]:
        yield Defect(
            f"{format_names(shared[True])} store the hidden side once for all experts, "
            f"{format_names(shared[False])} once for each expert; expected one layout",
            f"`inkling convert-adapter {shell_word(subject.path)} --to vllm -o OUT`, "
            "or `--to sglang`, writes a form that the engine applies",
            subject.at(min(shared.values(), key=len)[0]),
        )


@ADAPTER_RULES.rule("ADP020", "identical-copies", Severity.INFO)
def check_identical_copies(subject: AdapterSubject) -> Iterator[Defect]:
    """Routed experts whose hidden side is stored for each expert, with the same numbers.

    *What it checks*: with `--values`, whether the copies are the same bytes: those of the first
    layer that has them, as an adapter is written by one program. PEFT's form has no other way and
    is left out.

    *Why it matters*: such a file is up to three times as large as it need be, and an engine that
    holds the hidden side once refuses it or takes it for another layout.

    *How to fix*: `inkling convert-adapter` stores them once.
    """
    if subject.values is None or subject.adapter.dialect.written_as == "peft":
        return
    kinds: set[SiteKind] = set()
    copies: list[str] = []
    for site, pair in subject.pairs.items():
        is_routed = site.kind.group is Group.ROUTED and pair.form is Form.STACK
        if is_routed and not pair.is_shared_outer and site.kind not in kinds:
            kinds.add(site.kind)
            copies += [str(site)] if _is_repeated(subject, site) else []
    if copies:
        yield Defect(
            f"the hidden side of {format_names(copies)} is stored for each expert, "
            "all copies the same",
            f"`inkling convert-adapter {shell_word(subject.path)} --to vllm -o OUT`, "
            "or `--to sglang`, stores it once",
            subject.at(copies[0]),
        )


def _is_repeated(subject: AdapterSubject, site: Site) -> bool:
    """Return whether all experts have the same bytes at the hidden side, read one by one."""
    from inkling_runtime.adapter.arrays import is_same

    path_of = subject.adapter.file.path_of
    first, *others = [Read(path_of(t.name), t) for t in _hidden_sides(subject, site)]
    return all(is_same(first, other) for other in others)


def _hidden_sides(subject: AdapterSubject, site: Site) -> Iterator[TensorInfo]:
    """Yield the factor at the hidden side of each expert; a stack is cut by bytes."""
    for module in subject.adapter.modules:
        tensor = module.b if site.kind.is_down else module.a
        if site not in module.sites or tensor is None:
            continue
        if len(tensor.shape) == 2:
            yield tensor
            continue
        size = tensor.nbytes // tensor.shape[0]
        for start in range(tensor.start, tensor.end, size):
            yield TensorInfo(tensor.name, tensor.dtype, tensor.shape[1:], start, start + size)
