"""From an adapter's factors (arrays, any dialect's files behind them) to device tensors.

Every site is checked against the model, and nothing is in use before all of them are loaded.
Factors stay factors: ΔW is never formed, and what all experts share stays one matrix.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inkling_runtime.adapter.factors import SiteFactors
from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.adapter.module_problems import FACTOR_DTYPES
from inkling_runtime.adapter.sites import HEAD_SITE, Site, SiteShape
from inkling_runtime.errors import InklingError
from inkling_runtime.ops.lora_pair import LoraPair

Cut = Callable[[Site, NDArray[Any], NDArray[Any]], tuple[NDArray[Any], NDArray[Any]]]
"""Which part of the two factors of a site is held here."""


def load_adapter(
    factors: Mapping[Site, SiteFactors],
    spec: ModelSpec,
    device: torch.device,
    dtype: torch.dtype,
    cut: Cut | None = None,
) -> dict[Site, LoraPair]:
    """Return an adapter's pairs on a device, in the model's dtype.

    Each site is read once. On a CPU a pair may be the very memory of its factors, which are not
    to be written to any more. The head's B may have the rows of padded ids; they are left out.

    Args:
        factors: of the whole adapter.
        spec: the model.
        device: where the pairs go.
        dtype: the model's.
        cut: what of each site is held here; None: all of it.

    Raises:
        InklingError: the adapter has no site, or a site is not one of the model's or does not
            have its widths, or its two factors have different ranks.
    """
    pairs = {}
    for site, pair in iter_fitting(factors, spec):
        a, b = pair.a, pair.b
        if site == HEAD_SITE:
            b = b[: spec.unpadded_vocab_size]
        if cut is not None:
            a, b = cut(site, a, b)
        pairs[site] = LoraPair(
            _to_tensor(a, pair.dtype).to(device, dtype),
            _to_tensor(b, pair.dtype).to(device, dtype),
            pair.scaling,
        )
    return pairs


def iter_fitting(
    factors: Mapping[Site, SiteFactors], spec: ModelSpec
) -> Iterator[tuple[Site, SiteFactors]]:
    """Yield the factors of all sites, each as it is found to fit the model.

    Raises:
        InklingError: as `load_adapter`.
    """
    if not factors:
        raise InklingError("the adapter has no site, expected at least one")
    shapes = spec.sites()
    for site in factors:
        if site not in shapes:
            raise InklingError(
                f"the adapter has the site `{site}`, which the model does not have",
                "check that the adapter was made for this base model",
            )
    for site, pair in factors.items():
        _require_shapes(site, pair, shapes[site], spec.vocab_size)
        yield site, pair


def _require_shapes(site: Site, factors: SiteFactors, shape: SiteShape, vocab_size: int) -> None:
    a, b = factors.a.shape, factors.b.shape
    outs = (shape.out_features, vocab_size) if site == HEAD_SITE else (shape.out_features,)
    num_dims = 3 if shape.experts else 2
    if len(a) != num_dims or len(b) != num_dims:
        raise InklingError(
            f"the factors of `{site}` have {len(a)} and {len(b)} dimensions, expected {num_dims}"
        )
    if factors.dtype not in FACTOR_DTYPES:
        raise InklingError(
            f"the factors of `{site}` have the dtype {factors.dtype}, expected one of "
            + ", ".join(FACTOR_DTYPES)
        )
    rank, in_features = a[-2:]
    out_features, b_rank = b[-2:]
    if rank != b_rank or not rank:
        raise InklingError(f"`{site}` has rank {rank} in A and {b_rank} in B, expected one rank")
    if in_features != shape.in_features:
        raise InklingError(f"A of `{site}` takes {in_features}, expected {shape.in_features}")
    if out_features not in outs:
        expected = " or ".join(str(out) for out in dict.fromkeys(outs))
        raise InklingError(f"B of `{site}` gives {out_features}, expected {expected}")
    for name, experts in (("A", a[0]), ("B", b[0])):
        if shape.experts and experts not in (1, shape.experts):
            raise InklingError(
                f"{name} of `{site}` has {experts} experts, expected 1 or {shape.experts}"
            )


def _to_tensor(array: NDArray[np.generic], dtype: str) -> Tensor:
    """Return an array as a tensor of its own dtype; BF16 comes as uint16."""
    array = np.ascontiguousarray(array)
    if not array.flags.writeable:
        array = array.copy()
    if dtype == "BF16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
