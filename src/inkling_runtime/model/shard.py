"""What one rank holds of a model that several ranks run together (tensor and expert parallelism).

Pure functions of sizes: nothing is read, sent or computed here. `Shard` is the whole interface:

* `require_shardable` says whether a number of ranks works, and which do;
* `part_of` gives the boxes of a parameter that a rank holds (the loader reads only those);
* `cut_factors` gives the factors of a LoRA site that go with them;
* `local_layer`, `experts` and `gamma_experts` are the numbers that the forward pass needs.

What is cut where stands in two tables, `_CUTS` by parameter and `_SITE_CUTS` by site. All else
(router, norms, the convolutions behind the sums, `global_scale`) every rank holds whole.
Outputs that are sums over ranks: the embedding (rows of other ranks count as zero), `attn.wo`,
`mlp.w2`, and routed plus shared experts. Logits are put side by side, in the order of the ranks.

What a newcomer gets wrong: the shared experts are cut as one wide MLP of S·F columns, so a rank
may begin in the middle of one. A rank holds them as pieces of equal width, none of which lies in
two experts; to the ops a piece is an expert, with the gamma of the expert it was cut from.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

from inkling_runtime.adapter.model_spec import LayerSpec, ModelSpec
from inkling_runtime.adapter.sites import Group, SiteKind
from inkling_runtime.errors import InklingError
from inkling_runtime.model.boxes import Box, Part, cut, whole
from inkling_runtime.model.parameters import parse_size

_CUTS: Mapping[str, tuple[int, tuple[str, ...]]] = {
    "embed": (0, ("Vp",)),
    "head": (0, ("V",)),
    "attn.wqkvr": (0, ("Q", "K", "K", "R")),
    "attn.wo": (1, ("Q",)),
    "attn.k_conv": (1, ("K",)),
    "attn.v_conv": (1, ("K",)),
    "mlp.w13": (0, ("D", "D")),
    "mlp.w2": (1, ("D",)),
    "mlp.experts.w13": (1, ("F", "F")),
    "mlp.experts.w2": (2, ("F",)),
    "mlp.shared.w2": (1, ("S*F",)),
}
"""The axis of a parameter that is cut, and the widths that follow one another on it (in the letters
of `parameters.dimensions`); each is cut by itself. `mlp.shared.w13` is in pieces: `_pieces`."""

_EXPERT_CUTS: Mapping[str, tuple[int, tuple[str, ...]]] = {
    "mlp.experts.w13": (0, ("E",)),
    "mlp.experts.w2": (0, ("E",)),
}
"""What takes the place of `_CUTS` with `expert_parallel`: whole experts, F uncut."""

_SITE_CUTS: Mapping[SiteKind, tuple[str, str]] = {
    SiteKind.Q: ("B", "Q"),
    SiteKind.K: ("B", "K"),
    SiteKind.V: ("B", "K"),
    SiteKind.R: ("B", "R"),
    SiteKind.O: ("A", "Q"),
    SiteKind.DENSE_GATE: ("B", "D"),
    SiteKind.DENSE_UP: ("B", "D"),
    SiteKind.DENSE_DOWN: ("A", "D"),
    SiteKind.ROUTED_GATE: ("B", "F"),
    SiteKind.ROUTED_UP: ("B", "F"),
    SiteKind.ROUTED_DOWN: ("A", "F"),
    SiteKind.HEAD: ("B", "V"),
}
"""The factor that is cut, on its outer side (rows of B, columns of A), and the width there. The
other factor is whole. Shared experts: in pieces."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One of `size` ranks; `expert_parallel`: routed experts are dealt out whole, in blocks."""

    rank: int = 0
    size: int = 1
    expert_parallel: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.size:
            raise ValueError(f"rank {self.rank} of {self.size}")

    def part_of(self, name: str, shape: tuple[int, ...], letters: Mapping[str, int]) -> Part:
        """Return what this rank holds of a parameter.

        Args:
            name: as in `parameters.py`, without `layers.N.`.
            shape: of the whole parameter.
            letters: `dimensions` of its layer, or of the model.
        """
        if self.size == 1:
            return whole(shape)
        if name == "mlp.shared.w13":
            return self._shared_part(shape, letters)
        cuts = {**_CUTS, **_EXPERT_CUTS} if self.expert_parallel else _CUTS
        if name not in cuts:
            return whole(shape)
        axis, widths = cuts[name]
        spans, position = [], 0
        for width in widths:
            start, stop = self._span(width, letters)
            spans.append((position + start, position + stop))
            position += parse_size(width, letters)
        return cut(shape, axis, spans)

    def cut_factors(
        self, kind: SiteKind, a: Any, b: Any, letters: Mapping[str, int]
    ) -> tuple[Any, Any]:
        """Return the factors (tensors or arrays) that this rank holds of a site.

        A factor with one expert is shared by all and never cut by experts. The results may be
        views that are not contiguous.

        Args:
            kind: of the site.
            a: [R, in], or [E, R, in] or [1, R, in].
            b: [out, R], or [E, out, R] or [1, out, R]; the head's without padded rows.
            letters: `dimensions` of the site's layer, or of the model for the head.
        """
        if self.size == 1:
            return a, b
        if kind.group is Group.SHARED:
            return self._shared_factors(kind, a, b, letters)
        if kind.group is Group.ROUTED and self.expert_parallel:
            start, stop = self._span("E", letters)
            return (a[start:stop] if len(a) > 1 else a), (b[start:stop] if len(b) > 1 else b)
        factor, width = _SITE_CUTS[kind]
        start, stop = self._span(width, letters)
        return (a[..., start:stop], b) if factor == "A" else (a, b[..., start:stop, :])

    def local_layer(self, layer: LayerSpec) -> LayerSpec:
        """Return a layer with the numbers of heads that this rank computes."""
        return replace(
            layer,
            num_heads=layer.num_heads // self.size,
            num_kv_heads=max(layer.num_kv_heads // self.size, 1),
        )

    def experts(self, spec: ModelSpec) -> range:
        """Return the routed experts that this rank holds (parts) of."""
        if not self.expert_parallel:
            return range(spec.num_experts)
        return range(*self._span("E", {"E": spec.num_experts}))

    def gamma_experts(self, letters: Mapping[str, int]) -> tuple[int, ...]:
        """Return the shared expert of each local piece: local gammas are `gammas[:, these]`.

        That is the global column at which the piece begins, divided by F.
        """
        per_expert = letters["F"] // _piece_width(letters, self.size)
        return tuple(piece // per_expert for piece in self._pieces(letters))

    def _span(self, width: str, letters: Mapping[str, int]) -> tuple[int, int]:
        """Return [start, stop) of a width."""
        total = parse_size(width, letters)
        if width in ("V", "Vp"):
            step = -(-total // self.size)
            return min(self.rank * step, total), min((self.rank + 1) * step, total)
        if width == "K" and total // letters["d"] < self.size:
            head = self.rank * (total // letters["d"]) // self.size
            return head * letters["d"], (head + 1) * letters["d"]
        return total * self.rank // self.size, total * (self.rank + 1) // self.size

    def _pieces(self, letters: Mapping[str, int]) -> range:
        """Return the pieces of the S·F columns that this rank holds."""
        width = _piece_width(letters, self.size)
        start, stop = self._span("S*F", letters)
        return range(start // width, stop // width)

    def _shared_part(self, shape: tuple[int, ...], letters: Mapping[str, int]) -> Part:
        """Return gate and up of every piece: [pieces, 2·width, H] of [S, 2F, H]."""
        width, expert_width, hidden = _piece_width(letters, self.size), letters["F"], shape[2]
        boxes = []
        pieces = self._pieces(letters)
        for index, piece in enumerate(pieces):
            expert, row = divmod(piece * width, expert_width)
            for half in (0, 1):
                start = half * expert_width + row
                stops = (expert + 1, start + width, hidden)
                boxes.append(Box((expert, start, 0), stops, (index, half * width, 0)))
        return Part((len(pieces), 2 * width, hidden), tuple(boxes))

    def _shared_factors(
        self, kind: SiteKind, a: Any, b: Any, letters: Mapping[str, int]
    ) -> tuple[Any, Any]:
        """Return a factor per piece on the side of the width, per expert (or shared) beyond."""
        width = _piece_width(letters, self.size)
        per_expert = letters["F"] // width
        pieces, experts = list(self._pieces(letters)), list(self.gamma_experts(letters))

        def inner(stack: Any) -> Any:
            index = pieces if len(stack) > per_expert else [p % per_expert for p in pieces]
            return stack[index]

        def outer(stack: Any) -> Any:
            return stack[experts] if len(stack) > 1 else stack

        if kind.is_down:
            rank = a.shape[1]
            columns = a.reshape(len(a), rank, per_expert, width).swapaxes(1, 2)
            return inner(columns.reshape(-1, rank, width)), outer(b)
        return outer(a), inner(b.reshape(-1, width, b.shape[2]))


WHOLE = Shard()
"""The only rank of one."""


def require_shardable(spec: ModelSpec, size: int, *, expert_parallel: bool = False) -> None:
    """Require that a model can be cut for a number of ranks.

    Raises:
        InklingError: it cannot; the message says why, and which numbers of ranks work.
    """
    reason = _obstacle(spec, size, expert_parallel)
    if reason is None:
        return
    most = max(layer.num_heads for layer in spec.layers)
    works = [n for n in range(1, most + 1) if _obstacle(spec, n, expert_parallel) is None]
    raise InklingError(
        f"the model cannot be cut for {size} ranks: {reason}",
        "numbers of ranks that work: " + ", ".join(map(str, works)),
    )


def _obstacle(spec: ModelSpec, size: int, expert_parallel: bool) -> str | None:
    """Return why a model cannot be cut for a number of ranks, or None."""
    for layer in spec.layers:
        if layer.num_heads % size:
            return (
                f"layer {layer.index} has {layer.num_heads} query heads, "
                f"expected a multiple of {size}"
            )
        if layer.num_kv_heads % size and size % layer.num_kv_heads:
            return (
                f"layer {layer.index} has {layer.num_kv_heads} key heads, "
                f"expected a multiple or a divisor of {size}"
            )
    shared = spec.num_shared_experts * spec.expert_width
    widths = {"the shared experts' width together": shared} if _has_experts(spec) else {}
    if any(layer.is_dense for layer in spec.layers):
        widths["the dense width"] = spec.dense_width
    if _has_experts(spec):
        name = "the number of experts" if expert_parallel else "the expert width"
        widths[name] = spec.num_experts if expert_parallel else spec.expert_width
    for name, width in widths.items():
        if width % size:
            return f"{name} is {width}, expected a multiple of {size}"
    if (size - 1) * -(-spec.unpadded_vocab_size // size) >= spec.unpadded_vocab_size:
        return f"the vocabulary has {spec.unpadded_vocab_size} ids, too few for every rank"
    return None


def _has_experts(spec: ModelSpec) -> bool:
    return not all(layer.is_dense for layer in spec.layers)


def _piece_width(letters: Mapping[str, int], size: int) -> int:
    """Return the largest width that divides both an expert and what a rank holds of them all."""
    return gcd(letters["F"], letters["S"] * letters["F"] // size)
