"""Every site of a model lies in exactly one tensor of each layout, and fills it."""

import pytest

from factories import INKLING, SQUARE, TINY, Sizes, raw_config
from inkling_runtime.adapter.arithmetic import Product
from inkling_runtime.adapter.model_spec import ModelSpec, parse_model_spec
from inkling_runtime.adapter.moves import Zeros
from inkling_runtime.adapter.pairs import Form, Pair
from inkling_runtime.adapter.site_pairs import SitePairs
from inkling_runtime.merge.deltas import delta_of
from inkling_runtime.merge.targets import plan_targets
from inkling_runtime.model.checkpoint_names import LAYOUTS, Layout
from inkling_runtime.model.parameters import dimensions, parse_shape

MODELS = {"tiny": TINY, "square": SQUARE, "Inkling": INKLING}


def shapes_in_files(layout: Layout, spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor of a checkpoint."""
    letters = dimensions(spec)
    shapes = {name: parse_shape(s.shape, letters) for name, s in layout.model_names.items()}
    for layer in spec.layers:
        letters = dimensions(spec, layer)
        for name, source in layout.names_of(layer).items():
            shapes[name] = parse_shape(source.shape, letters)
    return shapes


def zero_pairs(spec: ModelSpec) -> SitePairs:
    """Return factors of rank 3 for every site; experts share the hidden side."""
    pairs = {}
    for site, shape in spec.sites().items():
        outer, inner = ((1,), (shape.experts,)) if shape.experts else ((), ())
        a_experts, b_experts = (inner, outer) if site.kind.is_down else (outer, inner)
        a = Zeros("BF16", (*a_experts, 3, shape.in_features))
        b = Zeros("BF16", (*b_experts, shape.out_features, 3))
        form = Form.STACK if shape.experts else Form.MATRIX
        pairs[site] = Pair(a, b, 1.0, form, site.kind.is_down)
    return pairs


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.layers)
@pytest.mark.parametrize("sizes", MODELS.values(), ids=MODELS)
def test_every_site_is_in_exactly_one_tensor(sizes: Sizes, layout: Layout) -> None:
    spec = parse_model_spec(raw_config(sizes))
    landed = [site for target in plan_targets(layout, spec).values() for site in target.sites]
    assert sorted(landed) == sorted(spec.sites())


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.layers)
@pytest.mark.parametrize("sizes", MODELS.values(), ids=MODELS)
def test_the_delta_of_every_tensor_has_its_shape(sizes: Sizes, layout: Layout) -> None:
    spec = parse_model_spec(raw_config(sizes))
    pairs, shapes = zero_pairs(spec), shapes_in_files(layout, spec)
    for name, target in plan_targets(layout, spec).items():
        delta = delta_of(target, pairs, spec, shapes[name][-2], "F32")
        assert delta is not None
        assert delta.shape == shapes[name], name


def test_what_is_not_adapted_has_no_delta() -> None:
    spec = parse_model_spec(raw_config(TINY))
    pairs = zero_pairs(spec)
    for layout in LAYOUTS:
        for target in plan_targets(layout, spec).values():
            others = {site: pair for site, pair in pairs.items() if site not in target.sites}
            assert delta_of(target, others, spec, TINY.vocab, "F32") is None


def test_a_single_site_of_a_tensor_is_a_product_and_no_copy() -> None:
    spec = parse_model_spec(raw_config(TINY))
    (raw, *_) = LAYOUTS
    target = plan_targets(raw, spec)["model.llm.layers.1.mlp.experts.w2_weight"]
    delta = delta_of(target, zero_pairs(spec), spec, TINY.hidden, "F64")
    assert isinstance(delta, Product)
    assert delta.dtype == "F64"
