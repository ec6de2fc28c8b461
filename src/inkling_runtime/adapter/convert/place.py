"""Where the result of a conversion may be written."""

import os
from pathlib import Path

from inkling_runtime.adapter.lora_config import CONFIG_NAME
from inkling_runtime.adapter.new_folder import require_new
from inkling_runtime.errors import InklingError


def require_place(source: Path, out: Path, overwrite: bool) -> None:
    """Require that a result of a source may be written to `out`.

    Raises:
        InklingError: it is the source or holds it, or `require_new` refuses it.
    """
    place, read = (Path(os.path.realpath(path)) for path in (out, source))
    if place == read:
        raise InklingError(f"`{out}` is the adapter that is being read, expected another folder")
    require_new(out, overwrite, CONFIG_NAME)
    if place in read.parents:
        raise InklingError(f"`{out}` holds the adapter that is being read, expected another folder")
