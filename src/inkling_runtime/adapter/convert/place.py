"""Where what is made of adapters or models may be written."""

import os
from collections.abc import Iterable
from pathlib import Path

from inkling_runtime.adapter.lora_config import CONFIG_NAME
from inkling_runtime.adapter.new_folder import require_new
from inkling_runtime.errors import InklingError


def require_place(
    sources: Iterable[Path], out: Path, overwrite: bool, marker: str = CONFIG_NAME
) -> None:
    """Require that what is made of sources may be written to `out`.

    Args:
        sources: the folders that are read.
        out: the folder to write.
        overwrite: whether it may be replaced.
        marker: a file that it must hold to be replaced.

    Raises:
        InklingError: it is, holds or lies in a source, or `require_new` refuses it.
    """
    place = Path(os.path.realpath(out))
    for folder in sources:
        source = Path(os.path.realpath(folder))
        if place == source or place in source.parents or source in place.parents:
            relation = "is" if place == source else "holds" if place in source.parents else "is in"
            raise InklingError(
                f"`{out}` {relation} the folder `{folder}` that is being read, "
                "expected another folder"
            )
    require_new(out, overwrite, marker)
