"""Names for quantisations that cannot be run, so that they are refused for what they are.

Judged by what the files hold, not by what config.json calls it: dtypes and names of tensors.
"""

import re
from collections.abc import Collection, Mapping
from pathlib import Path

from inkling_runtime.errors import InklingError, format_names

PLAIN_DTYPES = ("BF16", "F16", "F32", "F64")
"""What unquantised weights are stored in."""

_BY_DTYPE: Mapping[str, str] = {
    "F8_E8M0": "MXFP4 or MXFP8",
    "F4": "MXFP4",
    "F8_E4M3": "fp8",
    "F8_E5M2": "fp8",
    "I32": "int4",
    "I8": "int8",
    "U8": "4 bits, but not as NVFP4 weights of routed experts",
}
"""The most telling first."""

_QUANTISED_NAME = re.compile(
    r"(\.|_weight_|_proj_)(scales?|scale2|scale_inv|weight_scale(_2|_inv)?|weight_zero_point|q?zeros"
    r"|weight_packed|qweight|weight_shape|weight_global_scale|g_idx|blocks|absmax|quant_map"
    r"|input_amax|input_scale|input_global_scale|original_shape)$"
)
_MX_SCALE = re.compile(r"scales?$")


def require_known_quantisation(
    dtypes: Mapping[str, str], known: Mapping[str, Collection[str]], folder: Path
) -> None:
    """Require that every tensor is plain or of a quantisation that can be read.

    Args:
        dtypes: of the tensors, by name.
        known: the dtypes that the tensors which have a place may have.
        folder: that they are in.

    Raises:
        InklingError: some are quantised in another way; the message calls it by its name.
    """
    wrong = sorted(
        name
        for name, dtype in dtypes.items()
        if dtype not in known.get(name, PLAIN_DTYPES)
        or (name not in known and _QUANTISED_NAME.search(name))
    )
    if not wrong:
        return
    # Scales of powers of two are stored as bare exponents, in a dtype of their own or in bytes.
    found = {
        "F8_E8M0" if dtypes[name] == "U8" and _MX_SCALE.search(name) else dtypes[name]
        for name in wrong
    }
    kind = next((kind for dtype, kind in _BY_DTYPE.items() if dtype in found), None)
    raise InklingError(
        f"`{folder}` holds tensors in a quantisation that is not supported"
        + (f" ({kind})" if kind else "")
        + ": "
        + format_names([f"{name}: {dtypes[name]}" for name in wrong]),
        "use the checkpoint in BF16, or one with routed experts in NVFP4",
    )
