"""The files of an adapter that SGLang reads: every one with the ending, not one by its name.

No rules here. The trap: whatever else lies in the folder with the same ending is a part of the
adapter to SGLang, and a tensor that two files have is taken from the last of them.
"""

from pathlib import Path

from inkling_cli.checks.launch.adapter_facts import AdapterFacts
from inkling_runtime.adapter.adapter import WEIGHTS_NAME
from inkling_runtime.adapter.safetensors_file import TensorInfo, read_header
from inkling_runtime.errors import InklingError


def further_files(folder: Path) -> list[Path]:
    """Return the files beside adapter_model.safetensors that SGLang reads as well, in order."""
    try:
        return sorted(path for path in folder.glob("*.safetensors") if path.name != WEIGHTS_NAME)
    except OSError:
        return []


def file_problem(path: Path) -> str | None:
    """Return why a file cannot be read, or None."""
    try:
        read_header(path)
    except InklingError as error:
        return error.message
    except OSError as error:
        return error.strerror or str(error)
    return None


def stored_tensors(adapter: AdapterFacts) -> dict[str, TensorInfo]:
    """Return all tensors that SGLang reads of an adapter; files that are broken give none."""
    tensors = dict(adapter.adapter.file.tensors)
    for path in further_files(adapter.adapter.path):
        try:
            more = read_header(path).tensors
        except (InklingError, OSError):
            continue
        tensors = {**tensors, **more} if path.name > WEIGHTS_NAME else {**more, **tensors}
    return tensors
