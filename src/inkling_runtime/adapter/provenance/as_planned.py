"""Whether a written folder is the one that was planned, but for the tensors' bytes.

Config, header and the plan's own description of each tensor. A proof of deltas passes over some of
that: numbers of two dtypes can have the same bytes, and a config can ask for more than s·B·A.
"""

import json
from collections.abc import Mapping
from typing import Any

from inkling_runtime.adapter.adapter import Adapter
from inkling_runtime.adapter.convert.plan import Conversion
from inkling_runtime.adapter.lora_config import CONFIG_NAME, beyond_plain_lora
from inkling_runtime.adapter.shown import shown_text, shown_value
from inkling_runtime.errors import InklingError, format_names


def require_as_planned(conversion: Conversion, result: Adapter) -> None:
    """Require config and header of a written adapter to be what the plan says.

    Raises:
        InklingError: a key, a tensor, a dtype or a shape is other than planned, or the config asks
            for more than plain LoRA.
    """
    _require_config(result.config.values, conversion.config)
    if beyond := beyond_plain_lora(result.config):
        raise unproven(f"`{CONFIG_NAME}` has {beyond[0]}, with which the effect is more than s·B·A")
    if dict(result.file.metadata) != conversion.metadata:
        raise unproven(
            f"the header has the metadata {shown_value(dict(result.file.metadata))}, "
            f"expected {shown_value(conversion.metadata)}"
        )
    found = {name: _form(info.dtype, info.shape) for name, info in result.file.tensors.items()}
    planned = {
        output.spec.name: _form(output.array.dtype, output.array.shape)
        for output in conversion.outputs
    }
    if apart := sorted(found.keys() ^ planned.keys()):
        raise unproven(f"{format_names(apart)} are in the file or in the plan, expected in both")
    for name, form in planned.items():
        if found[name] != form:
            raise unproven(f"tensor `{name}` is {found[name]}, expected {form}")


def _require_config(found: Mapping[str, Any], planned: Mapping[str, Any]) -> None:
    for key in sorted(found.keys() | planned.keys()):
        one, other = (json.dumps(values.get(key), sort_keys=True) for values in (found, planned))
        if one != other:
            raise unproven(
                f"`{shown_text(key)}` of `{CONFIG_NAME}` is {shown_value(found.get(key))}, "
                f"expected {shown_value(planned.get(key))}"
            )


def _form(dtype: str, shape: tuple[int, ...]) -> str:
    return f"{dtype} {list(shape)}"


def unproven(message: str) -> InklingError:
    """Return the error that a result is not what was planned."""
    return InklingError(
        f"the result is not proven: {message}",
        "nothing was written; memory or disk may be faulty. If it happens again, please report it",
    )
