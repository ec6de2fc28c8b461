"""What each consumer demands of the factors beyond names, as exact rewrites of the pairs.

Companions that a consumer needs are added with a delta of zero, shared experts become flat or
stacked, and the head gets the rows that the consumer has. Each function changes `pairs` in place
and returns metadata for the written file.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.adapter.moves import Zeros, cut, pad
from inkling_runtime.adapter.pairs import (
    Form,
    Pair,
    expand_to_experts,
    to_flat,
    to_stack,
    zero_like,
)
from inkling_runtime.adapter.site_pairs import Contents, SitePairs
from inkling_runtime.adapter.sites import HEAD_SITE, Group, Site, SiteKind
from inkling_runtime.errors import InklingError

HEAD_ROWS = "inkling.head_rows"
"""Metadata key: rows of lm_head.lora_B before a conversion padded or cut them."""

_ATTENTION_IN = (SiteKind.Q, SiteKind.K, SiteKind.V, SiteKind.R)
Gated = tuple[SiteKind, SiteKind, SiteKind]
_ROUTED: Gated = (SiteKind.ROUTED_GATE, SiteKind.ROUTED_UP, SiteKind.ROUTED_DOWN)
_SHARED: Gated = (SiteKind.SHARED_GATE, SiteKind.SHARED_UP, SiteKind.SHARED_DOWN)
_GATED = (_ROUTED, _SHARED)

_MODEL_HINT = "pass the base model's folder or config.json with `--model`"


@dataclass(frozen=True, slots=True)
class Context:
    """What a preparation may look at: the base model, the bytes, the source file's metadata.

    With `force`, rows of the padded vocabulary are cut even if they are not zero: their ids are
    never sampled.
    """

    spec: ModelSpec | None
    contents: Contents
    metadata: dict[str, str]
    force: bool = False


def prepare(dialect: str, pairs: SitePairs, context: Context) -> dict[str, str]:
    """Rewrite `pairs` as the consumer of a dialect needs them; return metadata to be added.

    Raises:
        InklingError: a size is needed that only the base model tells, or rows of the head that
            the consumer lacks are not zero.
    """
    return _PREPARE[dialect](pairs, context)


def _prepare_tinker(pairs: SitePairs, context: Context) -> dict[str, str]:
    _flatten_shared(pairs)
    rows = context.metadata.get(HEAD_ROWS, "")
    if HEAD_SITE in pairs and rows.isascii() and rows.isdecimal() and len(rows) < 10:
        if _has_zero_rows_from(pairs[HEAD_SITE], int(rows), context.contents):
            _cut_head(pairs, int(rows))
        if context.spec is not None and int(rows) == context.spec.vocab_size:
            head = pairs[HEAD_SITE]
            pairs[HEAD_SITE] = replace(head, b=pad(head.b, 0, int(rows)))
    return {}


def _prepare_vllm(pairs: SitePairs, context: Context) -> dict[str, str]:
    _flatten_shared(pairs)
    _complete_routed(pairs)
    return {}


def _prepare_sglang(pairs: SitePairs, context: Context) -> dict[str, str]:
    _complete_gates_of_downs(pairs)
    _complete_gates(pairs)
    _make_outer_alike(pairs, context.spec)
    _complete_attention(pairs, context.spec)
    if context.spec is None or HEAD_SITE not in pairs:
        return {}
    rows, wanted = pairs[HEAD_SITE].b.shape[0], context.spec.unpadded_vocab_size
    if rows <= wanted:
        return {}
    if not context.force and not _has_zero_rows_from(pairs[HEAD_SITE], wanted, context.contents):
        raise InklingError(
            f"lm_head.lora_B has {rows} rows where SGLang takes {wanted}, "
            "and the surplus rows are not zero",
            "their ids are never sampled; pass `--force` to cut them",
        )
    _cut_head(pairs, wanted)
    return {HEAD_ROWS: str(rows)}


def _prepare_peft(pairs: SitePairs, context: Context) -> dict[str, str]:
    for site, pair in pairs.items():
        if site.kind.group is Group.SHARED:
            pairs[site] = to_stack(pair, _num_shared_experts(pairs, site, context.spec))
    head = pairs.get(HEAD_SITE)
    if head is None:
        return {}
    if context.spec is None:
        raise InklingError(
            "transformers' lm_head has the padded vocabulary, whose size only the base model tells",
            _MODEL_HINT,
        )
    rows, wanted = head.b.shape[0], context.spec.vocab_size
    if rows == wanted:
        return {}
    pairs[HEAD_SITE] = replace(head, b=pad(head.b, 0, wanted))
    return {HEAD_ROWS: str(rows)}


_PREPARE: dict[str, Callable[[SitePairs, Context], dict[str, str]]] = {
    "tinker": _prepare_tinker,
    "vllm": _prepare_vllm,
    "sglang": _prepare_sglang,
    "peft": _prepare_peft,
}


def _flatten_shared(pairs: SitePairs) -> None:
    for site, pair in pairs.items():
        if site.kind.group is Group.SHARED:
            pairs[site] = to_flat(pair)


def _num_shared_experts(pairs: SitePairs, site: Site, spec: ModelSpec | None) -> int:
    """Return S from the base model, or from the width of the routed experts of the same layer."""
    if spec is not None:
        return spec.num_shared_experts
    gate = pairs.get(Site(site.layer, SiteKind.ROUTED_GATE))
    down = pairs.get(Site(site.layer, SiteKind.ROUTED_DOWN))
    pair = pairs[site]
    if gate is None and down is None:
        raise InklingError(
            f"how many shared experts `{site}` holds is told neither by the file nor by a model",
            _MODEL_HINT,
        )
    width = gate.b.shape[-2] if gate is not None else _require(down).a.shape[-1]
    flat_width = pair.a.shape[-1] if pair.is_down else pair.b.shape[-2]
    if flat_width % width:
        raise InklingError(f"`{site}` is {flat_width} wide, the routed experts are {width} wide")
    return flat_width // width


def _make_outer_alike(pairs: SitePairs, spec: ModelSpec | None) -> None:
    """Store the hidden-side factor once in all experts, or per expert in all of them.

    SGLang takes one setting for the whole server, and reads it off the gate_up factors.
    """
    experts = {site: pair for site, pair in pairs.items() if site.kind.has_experts}
    if all(pair.form is Form.FLAT or pair.is_shared_outer for pair in experts.values()):
        _flatten_shared(pairs)
        return
    for site, pair in experts.items():
        if pair.form is Form.FLAT:
            pair = to_stack(pair, _num_shared_experts(pairs, site, spec))
        if pair.experts == 1:
            raise InklingError(
                f"`{site}` has one expert: SGLang takes it as shared, the others are per expert"
            )
        pairs[site] = expand_to_experts(pair)


def _complete_gates_of_downs(pairs: SitePairs, gated: tuple[Gated, ...] = _GATED) -> None:
    """Give each down without gate and up a gate of zero delta."""
    for gate_kind, up_kind, down_kind in gated:
        for site in [site for site in pairs if site.kind is down_kind]:
            gate, up = Site(site.layer, gate_kind), Site(site.layer, up_kind)
            if gate not in pairs and up not in pairs:
                pairs[gate] = _zero_gate(pairs[site])


def _zero_gate(down: Pair) -> Pair:
    """Return a gate of zero delta in the form of a down."""
    width, hidden, rank = down.a.shape[-1], down.b.shape[-2], down.rank
    if down.form is Form.FLAT:
        a, b = Zeros(down.a.dtype, (rank, hidden)), Zeros(down.b.dtype, (width, rank))
    else:
        a = Zeros(down.a.dtype, (1, rank, hidden))
        b = Zeros(down.b.dtype, (down.experts, width, rank))
    return Pair(a, b, down.scaling, down.form)


def _require(pair: Pair | None) -> Pair:
    assert pair is not None
    return pair


def _has_zero_rows_from(head: Pair, rows: int, contents: Contents) -> bool:
    have = head.b.shape[0]
    return rows < have and contents.is_zero(cut(head.b, 0, rows, have))


def _cut_head(pairs: SitePairs, rows: int) -> None:
    head = pairs[HEAD_SITE]
    pairs[HEAD_SITE] = replace(head, b=cut(head.b, 0, 0, rows))


def _complete_gates(pairs: SitePairs) -> None:
    """Give each up without a gate, or gate without an up, a companion of zero delta."""
    for gate_kind, up_kind, _ in _GATED:
        for layer in sorted({site.layer for site in pairs}):
            gate, up = Site(layer, gate_kind), Site(layer, up_kind)
            for present, absent in ((gate, up), (up, gate)):
                if present in pairs and absent not in pairs:
                    pair = pairs[present]
                    pairs[absent] = zero_like(pair, pair.b.shape[-2])


def _complete_routed(pairs: SitePairs) -> None:
    """Give each layer with routed experts all of w1, w3 and w2."""
    _complete_gates_of_downs(pairs, (_ROUTED,))
    _complete_gates(pairs)
    for site in [site for site in pairs if site.kind is SiteKind.ROUTED_GATE]:
        down = Site(site.layer, SiteKind.ROUTED_DOWN)
        if down not in pairs:
            gate = pairs[site]
            width, hidden = gate.b.shape[-2], gate.a.shape[-1]
            a = Zeros(gate.a.dtype, (gate.experts, gate.rank, width))
            b = Zeros(gate.b.dtype, (1, hidden, gate.rank))
            pairs[down] = Pair(a, b, gate.scaling, Form.STACK, is_down=True)


def _complete_attention(pairs: SitePairs, spec: ModelSpec | None) -> None:
    """Give each layer with any of q, k, v and r all four."""
    for layer in sorted({site.layer for site in pairs}):
        sites = [Site(layer, kind) for kind in _ATTENTION_IN]
        present = [site for site in sites if site in pairs]
        if not present or len(present) == len(sites):
            continue
        if spec is None:
            raise InklingError(
                f"layer {layer} adapts {len(present)} of q, k, v and r; SGLang drops them unless "
                "all four are there, and the widths of the others come from the base model",
                _MODEL_HINT,
            )
        shapes, like = spec.sites(), pairs[present[0]]
        for site in sites:
            if site not in pairs and site in shapes:
                pairs[site] = zero_like(like, shapes[site].out_features)
