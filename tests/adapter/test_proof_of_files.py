"""A proof looks at what is on the disk: no tensor, dtype or key may be other than planned.

Also where the delta says nothing: numbers that a zero B hides, and NaN.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conversion import plan
from differences import DIALECTS, SPEC, Tensors, normal

from factories import safetensors_bytes, write_released_adapter
from inkling_runtime.adapter.adapter import read_adapter
from inkling_runtime.adapter.arithmetic import Scale
from inkling_runtime.adapter.arrays import CONTENTS
from inkling_runtime.adapter.convert.options import Options
from inkling_runtime.adapter.convert.plan import Conversion, plan_conversion
from inkling_runtime.adapter.convert.write import write_conversion
from inkling_runtime.adapter.dialects import require_target
from inkling_runtime.adapter.moves import Interleave, join
from inkling_runtime.adapter.outputs import Output
from inkling_runtime.adapter.provenance.prove import prove
from inkling_runtime.adapter.provenance.proven import Account, Action, Proof, Proven, Verification
from inkling_runtime.adapter.provenance.read_record import read_record
from inkling_runtime.adapter.provenance.run_check import plan_check, run_check
from inkling_runtime.errors import InklingError

ALL, COMPUTED, NONE = Verification.ALL, Verification.COMPUTED, Verification.NONE
Header, Edit = dict[str, Any], Callable[[dict[str, Any], bytearray], None]


def write_unproven(
    folder: Path, dialect: str, options: Options | None = None, **changes: Any
) -> tuple[Conversion, Path]:
    """Return the plan of a conversion of a random adapter, and what it wrote."""
    source = write_released_adapter(folder / "source", **{"fill": normal} | changes)
    target, options = require_target(dialect), options or Options()
    conversion = plan_conversion(read_adapter(source), target, SPEC, CONTENTS, options)
    write_conversion(conversion, folder / "out", verification=NONE)
    return conversion, folder / "out"


def prove_again(conversion: Conversion, out: Path, verification: Verification) -> Proof:
    digests = {name: tensor.sha256 for name, tensor in read_record(out).tensors.items()}
    account = Account(Action.CONVERT, (conversion.source,))
    return prove(conversion, account, out, digests, verification)


def edit_weights(folder: Path, edit: Edit) -> None:
    """Change the header's entries and the bytes of all tensors."""
    path = folder / "adapter_model.safetensors"
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header, payload = json.loads(data[8:start]), bytearray(data[start:])
    edit(header, payload)
    path.write_bytes(safetensors_bytes(header, bytes(payload)))


def edit_config(folder: Path, **changes: Any) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | changes), "utf-8")


def assert_unproven(conversion: Conversion, out: Path, verification: Verification) -> None:
    with pytest.raises(InklingError, match="the result is not proven"):
        prove_again(conversion, out, verification)


def tensor_names(header: Header) -> list[str]:
    return [name for name in header if name != "__metadata__"]


def retype_one(header: Header, payload: bytearray) -> None:
    """Let BF16 be F16, which has as many bytes."""
    header[tensor_names(header)[0]]["dtype"] = "F16"


def retype_all(header: Header, payload: bytearray) -> None:
    for name in tensor_names(header):
        header[name]["dtype"] = "F16"


def stamp(header: Header, payload: bytearray) -> None:
    header["__metadata__"] = {"inkling_dialect": "raw"}


@pytest.mark.parametrize("verification", [ALL, COMPUTED])
@pytest.mark.parametrize("dialect", DIALECTS)
class TestTheSameBytes:
    """All bytes of tensors are as they were written."""

    @pytest.mark.parametrize("edit", [retype_one, retype_all, stamp])
    def test_under_another_header(
        self, tmp_path: Path, dialect: str, verification: Verification, edit: Edit
    ) -> None:
        conversion, out = write_unproven(tmp_path, dialect)
        edit_weights(out, edit)
        assert_unproven(conversion, out, verification)

    @pytest.mark.parametrize(
        "changes",
        [
            {"use_dora": True},
            {"bias": "all"},
            {"target_modules": ["wq_du"]},
            {"exclude_modules": ["wq_du"]},
            {"lora_dropout": None},
        ],
        ids=lambda changes: next(iter(changes)),
    )
    def test_under_another_config(
        self, tmp_path: Path, dialect: str, verification: Verification, changes: dict[str, Any]
    ) -> None:
        conversion, out = write_unproven(tmp_path, dialect)
        edit_config(out, **changes)
        assert_unproven(conversion, out, verification)


@pytest.mark.parametrize("verification", [ALL, COMPUTED])
@pytest.mark.parametrize(
    ("options", "changes"),
    [(Options(dtype="BF16"), {"dtype": "F32"}), (Options(fold_scaling=True), {"alpha": 7})],
    ids=["cast", "fold"],
)
def test_a_rounding_allows_no_other_bit(
    tmp_path: Path, options: Options, changes: dict[str, Any], verification: Verification
) -> None:
    conversion, out = write_unproven(tmp_path, "vllm", options, **changes)
    assert set(prove_again(conversion, out, verification).modules.values()) == {Proven.ROUNDED}
    for name in tensor_names_of(out, "B"):
        edit_weights(out, flip(name))
        assert_unproven(conversion, out, verification)
        edit_weights(out, flip(name))


def flip(name: str) -> Edit:
    """Return what moves the first number of a tensor by one unit in its last place."""

    def edit(header: Header, payload: bytearray) -> None:
        payload[header[name]["data_offsets"][0]] ^= 1

    return edit


def tensor_names_of(folder: Path, letter: str) -> list[str]:
    return sorted(n for n in read_adapter(folder).file.tensors if f".lora_{letter}." in n)


@pytest.mark.parametrize("verification", [ALL, COMPUTED])
@pytest.mark.parametrize("factor", [-1.0, 1.1, 2.0])
def test_a_rounding_allows_no_other_factor(
    tmp_path: Path, factor: float, verification: Verification
) -> None:
    source = write_released_adapter(tmp_path / "source", fill=normal, alpha=7)
    target, options = require_target("vllm"), Options(fold_scaling=True)
    conversion = plan_conversion(read_adapter(source), target, SPEC, CONTENTS, options)
    *others, last = conversion.outputs
    assert isinstance(last.array, Scale)
    wrong = Output(last.spec, replace(last.array, factor=last.array.factor * factor))
    with pytest.raises(InklingError, match="expected the same but for one rounding"):
        write_conversion(
            replace(conversion, outputs=(*others, wrong)),
            tmp_path / "out",
            verification=verification,
        )


def zero_b(tensors: Tensors) -> None:
    for name, tensor in tensors.items():
        if ".lora_B." in name:
            tensor.zero_()


def test_what_a_zero_b_hides_is_proven_too(tmp_path: Path) -> None:
    """From such an adapter, training goes on: its A is worth as much as any other."""
    conversion, out = write_unproven(tmp_path, "peft", edit=zero_b)
    for name in tensor_names_of(out, "A"):
        edit_weights(out, flip(name))
        assert_unproven(conversion, out, ALL)
        edit_weights(out, flip(name))
    assert Proven.NOTHING not in prove_again(conversion, out, ALL).modules.values()


def not_a_number(tensors: Tensors) -> None:
    for tensor in tensors.values():
        tensor.reshape(-1)[0] = float("nan")


def join_rows(output: Output) -> Output:
    """Return gate after up, where their rows should alternate."""
    if not isinstance(output.array, Interleave):
        return output
    return Output(output.spec, join(list(output.array.inputs), output.array.axis))


class TestNotANumber:
    """A NaN has no distance to anything; the numbers beside it still must be the source's."""

    @pytest.mark.parametrize(
        ("dialect", "options", "changes"),
        [
            ("vllm", Options(), {}),
            ("peft", Options(), {}),
            ("sglang", Options(fold_scaling=True), {"alpha": 7}),
            ("tinker", Options(dtype="BF16"), {"dtype": "F32"}),
        ],
        ids=["vllm", "peft", "fold", "cast"],
    )
    def test_does_not_keep_the_rest_from_being_proven(
        self, tmp_path: Path, dialect: str, options: Options, changes: dict[str, Any]
    ) -> None:
        conversion, out = write_unproven(tmp_path, dialect, options, edit=not_a_number, **changes)
        found = set(prove_again(conversion, out, ALL).modules.values())
        assert found <= {Proven.BYTES, Proven.EQUAL, Proven.ROUNDED}
        assert run_check(plan_check(out, ()), SPEC).is_clean

    @pytest.mark.parametrize("verification", [ALL, COMPUTED])
    def test_does_not_hide_wrong_rows(self, tmp_path: Path, verification: Verification) -> None:
        source = write_released_adapter(tmp_path / "source", fill=normal, edit=not_a_number)
        conversion = plan(source, "vllm", SPEC)
        outputs = tuple(map(join_rows, conversion.outputs))
        assert outputs != conversion.outputs
        wrong = replace(conversion, outputs=outputs)
        with pytest.raises(InklingError, match="holds NaN or infinity, and other numbers than"):
            write_conversion(wrong, tmp_path / "out", verification=verification)
