"""Writes a picture to a file: all of it or nothing.

An existing picture is replaced, because it is made from the adapter and can be made again; a
folder, a link or a device is not.
"""

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from inkling_cli.render.plot.html import html_bytes
from inkling_cli.render.plot.png import png_bytes
from inkling_cli.render.plot.svg import svg_bytes
from inkling_runtime.adapter.values import AdapterValues
from inkling_runtime.errors import InklingError

_WRITERS: dict[str, Callable[[AdapterValues], bytes]] = {
    ".svg": svg_bytes,
    ".png": png_bytes,
    ".html": html_bytes,
}


def write_plot(values: AdapterValues, path: Path) -> None:
    """Write the picture of an adapter's norms in the format that the file's ending names.

    Raises:
        InklingError: the ending is another, something that is no regular file is in the way, or
            the file cannot be written.
    """
    require_plot_path(path)
    data = _WRITERS[path.suffix.lower()](values)
    name = ""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o666 & ~_umask())
        Path(name).replace(path)
    except OSError as error:
        raise InklingError(f"`{path}` cannot be written: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            Path(name).unlink() if name else None


def require_plot_path(path: Path) -> None:
    """Require that a picture may be written to a path, before anything long is done for it.

    Raises:
        InklingError: as `write_plot`.
    """
    if path.suffix.lower() not in _WRITERS:
        ending = f"ends in `{path.suffix}`" if path.suffix else "has no ending"
        raise InklingError(f"`{path}` {ending}, expected one of {', '.join(_WRITERS)}")
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise InklingError(f"`{path}` is no regular file, expected one that can be replaced")
    if not path.absolute().parent.is_dir():
        raise InklingError(f"`{path.parent}` does not exist", "make the folder first")


def _umask() -> int:
    """Return the mask of new files; it can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
