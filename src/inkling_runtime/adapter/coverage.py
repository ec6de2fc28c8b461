"""An adapter against the base model: which sites are adapted, which do not exist, which do not fit.

Works on shapes alone. Every site of the model and every site of the adapter gets a fate.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.adapter.pairs import Form, Pair
from inkling_runtime.adapter.sites import HEAD_SITE, Site, SiteShape
from inkling_runtime.errors import InklingError, format_count


@dataclass(frozen=True, slots=True)
class Misfit:
    """A site whose factors do not fit the base model's widths.

    Attributes:
        site: the site.
        message: what does not fit, with both values.
        factor: the one whose width it is, `A` or `B`; None where it is the number of experts.
    """

    site: Site
    message: str
    factor: str | None = None


@dataclass(frozen=True, slots=True)
class Coverage:
    """The comparison: sites that fit, that the adapter lacks, that the model lacks, misfits."""

    fitting: tuple[Site, ...]
    missing: tuple[Site, ...]
    surplus: tuple[Site, ...]
    misfits: tuple[Misfit, ...]


def compare(pairs: Mapping[Site, Pair], spec: ModelSpec) -> Coverage:
    """Return how an adapter's factors fit a base model."""
    shapes = spec.sites()
    misfits = []
    for site, pair in pairs.items():
        if site in shapes and (misfit := _misfit(site, pair, shapes[site], spec)):
            misfits.append(misfit)
    bad = {misfit.site for misfit in misfits}
    return Coverage(
        fitting=tuple(site for site in pairs if site in shapes and site not in bad),
        missing=tuple(site for site in shapes if site not in pairs),
        surplus=tuple(site for site in pairs if site not in shapes),
        misfits=tuple(misfits),
    )


def _misfit(site: Site, pair: Pair, shape: SiteShape, spec: ModelSpec) -> Misfit | None:
    """Return what does not fit, or None."""
    width_in, width_out = pair.a.shape[-1], pair.b.shape[-2]
    expected_in, expected_out = shape.in_features, shape.out_features
    if pair.form is Form.FLAT and pair.is_down:
        expected_in *= shape.experts
    elif pair.form is Form.FLAT:
        expected_out *= shape.experts
    if width_in != expected_in:
        message = f"A takes {width_in} features, the base model gives {expected_in}"
        return Misfit(site, message, "A")
    allowed = {expected_out}
    if site == HEAD_SITE:
        allowed.add(spec.vocab_size)
    if width_out not in allowed:
        wanted = " or ".join(str(rows) for rows in sorted(allowed))
        return Misfit(site, f"B gives {width_out} features, the base model takes {wanted}", "B")
    if pair.form is Form.STACK and pair.experts != shape.experts:
        held = format_count(pair.experts, "expert")
        return Misfit(site, f"it holds {held}, the base model has {shape.experts}")
    return None


def require_fit(adapter: Path, pairs: Mapping[Site, Pair], spec: ModelSpec) -> None:
    """Require that everything in an adapter has a place in the base model.

    Raises:
        InklingError: with the first site that the model lacks or that does not fit.
    """
    coverage = compare(pairs, spec)
    if coverage.surplus:
        raise InklingError(
            f"`{adapter}` adapts `{coverage.surplus[0]}`, which the base model does not have",
            size_hint(pairs),
        )
    if coverage.misfits:
        misfit = coverage.misfits[0]
        raise InklingError(
            f"`{misfit.site}` of `{adapter}` does not fit the base model: {misfit.message}",
            size_hint(pairs),
        )


def likely_size(pairs: Mapping[Site, Pair]) -> str | None:
    """Return which released model the hidden width belongs to: `Inkling`, `Inkling-Small`, None."""
    widths = {pair.a.shape[-1] for site, pair in pairs.items() if not site.kind.is_down}
    hidden = {6144: "Inkling", 4096: "Inkling-Small"}
    names = {hidden[width] for width in widths if width in hidden}
    return names.pop() if len(names) == 1 else None


def size_hint(pairs: Mapping[Site, Pair]) -> str | None:
    """Return in words which released model an adapter that does not fit was made for, or None."""
    size = likely_size(pairs)
    return f"the adapter's widths are those of {size}" if size else None
