"""Every kernel compiles for the GPUs that Inkling runs on. In a process of its own: kernels that
were imported for the interpreter cannot be compiled."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import inkling_runtime.ops.kernels as kernels
from inkling_runtime.ops.kernels.compile_all import SHARED_LIMITS, Usage, format_table

FITTING = Usage("file", "variant", "what_kernel", 90, 64, 0, 227 * 1024, 512, 4)
FOLDER = Path(kernels.__file__).parent


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Usage]:
    file = tmp_path_factory.mktemp("compiled") / "rows.json"
    command = [sys.executable, "-m", "inkling_runtime.ops.kernels.compile_all", "--json", str(file)]
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert file.exists(), done.stderr
    rows = [Usage(**row) for row in json.loads(file.read_text())]
    assert done.stdout == format_table(rows) + "\n"
    assert done.returncode == int(any(row.defects() for row in rows))
    return rows


def jit_functions() -> list[tuple[str, str]]:
    """Return file and name of every function that is decorated as a kernel or a part of one."""
    return [
        (path.stem, node.name)
        for path in FOLDER.glob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef)
        and any("triton.jit" in ast.unparse(mark) for mark in node.decorator_list)
    ]


def test_no_kernel_spills_or_exceeds_the_memory_of_its_device(rows: list[Usage]) -> None:
    assert [(row, row.defects()) for row in rows if row.defects()] == []


@pytest.mark.parametrize("capability", SHARED_LIMITS)
def test_every_kernel_is_compiled_for_every_target(rows: list[Usage], capability: int) -> None:
    compiled = {(row.file, row.kernel) for row in rows if row.capability == capability}
    entries = {(file, name) for file, name in jit_functions() if name.endswith("_kernel")}
    assert compiled == entries


def test_every_kernel_is_found_by_the_search() -> None:
    text = "".join(path.read_text() for path in FOLDER.glob("*.py"))
    assert len(jit_functions()) == text.count("\n@triton.jit") > 0


def test_a_kernel_that_just_fits_has_no_defect() -> None:
    assert FITTING.defects() == []


@pytest.mark.parametrize(
    ("change", "defect"),
    [
        ({"spilled": 8}, "spills 8 bytes"),
        ({"shared": 227 * 1024 + 1}, "has 232448"),
        ({"capability": 80}, "has 166912"),
        ({"tensor_memory": 513}, "513 columns"),
    ],
)
def test_a_kernel_that_does_not_fit_is_told(change: dict[str, int], defect: str) -> None:
    usage = Usage(**{**{f: getattr(FITTING, f) for f in Usage.__slots__}, **change})
    assert len(usage.defects()) == 1
    assert defect in usage.defects()[0]
    assert f"error: {usage.defects()[0]}" in format_table([FITTING, usage])
