"""Rules over an adapter's factors against the base model's layers and widths."""

from collections import defaultdict
from collections.abc import Iterator

from inkling_cli.checks.adapter.subject import ADAPTER_RULES, AdapterSubject
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.rule import Defect
from inkling_runtime.adapter.adapter_module import AdapterModule
from inkling_runtime.adapter.coverage import Misfit, size_hint
from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.adapter.pairs import Form
from inkling_runtime.adapter.sites import HEAD_SITE, Group, Site, SiteKind
from inkling_runtime.errors import format_count, format_names

_ERROR = Severity.ERROR


@ADAPTER_RULES.rule("ADP006", "not-in-base-model", _ERROR)
def check_not_in_base_model(subject: AdapterSubject) -> Iterator[Defect]:
    """Modules that the base model does not have.

    *What it checks*: the layer exists, and is dense or has experts as the module says.

    *Why it matters*: vLLM drops such modules silently and serves the rest; SGLang fails.

    *How to fix*: serve the adapter on the model that it was trained on.
    """
    coverage, spec = subject.coverage, subject.spec
    if coverage is None or spec is None:
        return
    by_reason: dict[str, list[str]] = defaultdict(list)
    for site in coverage.surplus:
        by_reason[_why_not_there(site, spec)].append(str(site))
    for reason, names in by_reason.items():
        verb = "is" if len(names) == 1 else "are"
        yield Defect(
            f"{format_count(len(names), 'module')} {verb} not in the base model, {reason}: "
            f"{format_names(names)}",
            size_hint(subject.pairs),
            subject.at(names[0]),
        )


def _why_not_there(site: Site, spec: ModelSpec) -> str:
    if site.layer >= spec.num_layers:
        return f"which has the layers 0 to {spec.num_layers - 1}"
    if site.kind.group is Group.DENSE:
        return "whose layer has experts there, not a dense MLP"
    return "whose layer is dense there, without experts"


@ADAPTER_RULES.rule("ADP007", "does-not-fit-base-model", _ERROR)
def check_does_not_fit_base_model(subject: AdapterSubject) -> Iterator[Defect]:
    """Factors whose widths are not those of the base model.

    *What it checks*: the input width of A, the output width of B and the number of experts of
    every module against config.json, layer by layer: sliding and global layers may have other
    numbers of heads. The head may have the padded or the unpadded vocabulary.

    *Why it matters*: vLLM writes an adapter of a smaller model into a corner of its buffers and
    serves it without a message.

    *How to fix*: serve the adapter on the model that it was trained on.
    """
    coverage, spec = subject.coverage, subject.spec
    if coverage is None or spec is None or not coverage.misfits:
        return
    first, count = min(coverage.misfits, key=lambda m: m.site == HEAD_SITE), len(coverage.misfits)
    more = f" (and {count - 1} more modules)" if count > 1 else ""
    swapped = _is_swapped(subject, first.site, spec)
    note = "its sides in and out are swapped" if swapped else _note(subject, first, spec)
    yield Defect(
        f"`{first.site}`: {first.message}{f' ({note})' if note else ''}{more}",
        size_hint(subject.pairs) or _remedy(first.site, spec, is_swapped=swapped),
        subject.at(str(first.site)),
    )


def _note(subject: AdapterSubject, misfit: Misfit, spec: ModelSpec) -> str | None:
    """Return where the base model's width comes from, if that is not plain."""
    site = misfit.site
    if misfit.factor != ("A" if site.kind.is_down else "B"):
        return None
    if site.kind in (SiteKind.K, SiteKind.V):
        layer = spec.layers[site.layer]
        kind = "sliding" if layer.is_sliding else "global"
        heads = format_count(layer.num_kv_heads, "K/V head")
        return f"layer {site.layer} is {kind}: {heads} of {layer.head_dim}"
    if site == HEAD_SITE:
        return "the vocabulary without and with its padding"
    if subject.pairs[site].form is Form.FLAT:
        shape = spec.sites()[site]
        return f"{shape.experts} experts of {spec.expert_width} side by side"
    return None


def _remedy(site: Site, spec: ModelSpec, *, is_swapped: bool) -> str | None:
    if is_swapped:
        return "export it again with a PEFT that is not older than 0.19"
    if site == HEAD_SITE:
        return f"export B with {spec.unpadded_vocab_size} rows, one for each token"
    return "check the adapter against the config of the model that it was trained on"


def _is_swapped(subject: AdapterSubject, site: Site, spec: ModelSpec) -> bool:
    """Return whether a packed module fits once in and out are exchanged."""
    module = next((m for m in subject.adapter.modules if site in m.sites), None)
    if module is None or module.a is None or module.b is None:
        return False
    if not module.parsed.row.layout.is_packed:
        return False
    wide, narrow = _sides(module, spec)
    return (module.a.shape[-1], module.b.shape[0]) == (narrow, wide) != (wide, narrow)


def _sides(module: AdapterModule, spec: ModelSpec) -> tuple[int, int]:
    """Return the widths in and out of a packed module, gate and up together."""
    shapes = spec.sites()
    known = [shapes[site] for site in module.sites if site in shapes]
    width_in = known[0].in_features if known else 0
    return width_in, sum(shape.out_features for shape in known)
