"""The library's whole way from one folder to another, as the tests walk it."""

from pathlib import Path
from typing import Any

from factories import Sizes, raw_config
from inkling_runtime.adapter.adapter import Adapter, read_adapter, require_understood
from inkling_runtime.adapter.arrays import CONTENTS
from inkling_runtime.adapter.convert.options import Options
from inkling_runtime.adapter.convert.plan import Conversion, plan_conversion
from inkling_runtime.adapter.convert.write import write_conversion
from inkling_runtime.adapter.dialects import require_dialect
from inkling_runtime.adapter.factors import SiteFactors
from inkling_runtime.adapter.load_factors import load_factors
from inkling_runtime.adapter.model_spec import ModelSpec, parse_model_spec
from inkling_runtime.adapter.site_pairs import HEADERS_ONLY, Contents, gather_pairs
from inkling_runtime.errors import InklingError


def spec_of(sizes: Sizes, **changes: Any) -> ModelSpec:
    """Return the library's spec of a model, from the raw config."""
    return parse_model_spec(raw_config(sizes, **changes))


def plan(
    source: Path,
    target: str,
    spec: ModelSpec | None,
    *,
    dialect: str | None = None,
    contents: Contents = CONTENTS,
    force: bool = False,
) -> Conversion:
    """Return the plan of a conversion."""
    adapter = read_adapter(source, dialect)
    return plan_conversion(adapter, require_dialect(target), spec, contents, Options(force=force))


def convert(
    source: Path,
    target: str,
    out: Path,
    spec: ModelSpec | None,
    *,
    dialect: str | None = None,
    contents: Contents = CONTENTS,
) -> Conversion:
    """Plan and write a conversion and return its plan."""
    conversion = plan(source, target, spec, dialect=dialect, contents=contents)
    write_conversion(conversion, out)
    return conversion


def refusal_of(
    source: Path, target: str, out: Path, spec: ModelSpec | None, *, dialect: str | None = None
) -> InklingError | None:
    """Convert and return None, or the error that says why not."""
    try:
        convert(source, target, out, spec, dialect=dialect)
    except InklingError as error:
        return error
    return None


def factors_of(adapter: Adapter, spec: ModelSpec) -> dict[str, SiteFactors]:
    """Return the factors that the runtime would load, by the site's text."""
    require_understood(adapter)
    loaded = load_factors(gather_pairs(adapter, spec, HEADERS_ONLY), spec)
    return {str(site): factors for site, factors in loaded.items()}


def payload(folder: Path) -> bytes:
    """Return the weights file without its header: the bytes of all tensors in file order."""
    data = (folder / "adapter_model.safetensors").read_bytes()
    return data[8 + int.from_bytes(data[:8], "little") :]


def is_folded(conversion: Conversion) -> bool:
    """Return whether the plan says that scaling was multiplied into B."""
    return any("scaling folded" in change for change in conversion.changes)
