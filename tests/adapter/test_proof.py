"""What is written is proven from what is on the disk, and what is not proven is not written."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from combining import merge
from conversion import plan, spec_of
from differences import DIALECTS, PAIRS, QUERY, SPEC, Tensors, normal
from hypothesis import HealthCheck, given, settings
from resizing import resize
from strategies import ADAPTERS, Example

from factories import TINY, any_bits, write_released_adapter
from inkling_runtime.adapter.adapter import read_adapter
from inkling_runtime.adapter.arrays import CONTENTS
from inkling_runtime.adapter.convert.options import Options
from inkling_runtime.adapter.convert.plan import Conversion, plan_conversion
from inkling_runtime.adapter.convert.write import write_conversion
from inkling_runtime.adapter.dialects import require_target
from inkling_runtime.adapter.moves import Interleave, iter_reads
from inkling_runtime.adapter.open_files import OpenFiles
from inkling_runtime.adapter.outputs import Output
from inkling_runtime.adapter.provenance.deltas import Expectation, pairs_of, prove_delta
from inkling_runtime.adapter.provenance.prove import bytes_to_prove, prove
from inkling_runtime.adapter.provenance.proven import Account, Action, Proof, Proven, Verification
from inkling_runtime.adapter.provenance.read_record import read_record
from inkling_runtime.adapter.resize.coefficient_store import CoefficientStore
from inkling_runtime.adapter.resize.plan import Destination, plan_adapter_resize
from inkling_runtime.adapter.resize.target_rank import TargetRank
from inkling_runtime.adapter.sites import Group
from inkling_runtime.errors import InklingError

QUICK = settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
ALL, COMPUTED, NONE = Verification.ALL, Verification.COMPUTED, Verification.NONE


def plan_with(source: Path, target: str, options: Options) -> Conversion:
    return plan_conversion(read_adapter(source), require_target(target), SPEC, CONTENTS, options)


def found_by(proof: Proof) -> set[Proven]:
    return set(proof.modules.values())


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_every_module_of_every_conversion_is_proven(source: str, target: str) -> None:
    @QUICK
    @given(ADAPTERS[source])
    def check(example: Example) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = example.write(Path(name) / "source")
            out = Path(name) / "out"
            conversion = plan(folder, target, spec_of(example.sizes), dialect=source)
            done: list[int] = []
            proof = write_conversion(conversion, out, verification=ALL, proof_progress=done.append)
            assert set(proof.modules) == {m.name for m in read_adapter(out, target).modules}
            assert Proven.NOTHING not in found_by(proof)
            assert sum(done) == bytes_to_prove(conversion, ALL) == conversion.nbytes

    check()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_by_default_only_what_is_computed_or_moved_is_read_back(
    tmp_path: Path, dialect: str
) -> None:
    conversion = plan(write_released_adapter(tmp_path / "source"), dialect, SPEC)
    done: list[int] = []
    proof = write_conversion(conversion, tmp_path / "out", proof_progress=done.append)
    moved = [name for name, proven in proof.modules.items() if proven is not Proven.NOTHING]
    expected = {"tinker": 0, "vllm": 1, "sglang": 0, "peft": 16}[dialect]
    assert len(moved) == expected
    assert sum(done) == bytes_to_prove(conversion, COMPUTED)
    none = write_conversion(conversion, tmp_path / "none", verification=NONE)
    assert found_by(none) == {Proven.NOTHING}
    assert none.modules.keys() == proof.modules.keys()


class TestRoundings:
    def test_none_is_allowed_that_is_not_asked_for(self, tmp_path: Path) -> None:
        source = write_released_adapter(tmp_path / "source", fill=normal, dtype="F32")
        conversion = plan_with(source, "tinker", Options(dtype="BF16"))
        write_conversion(conversion, tmp_path / "out")
        before, after = (pairs_of(read_adapter(tmp_path / n), SPEC) for n in ("source", "out"))
        expectation = Expectation(before, after, conversion.options, SPEC)
        with OpenFiles() as files:
            for aligned in expectation.sites():
                for may_round, proven in ((True, Proven.ROUNDED), (False, Proven.NOTHING)):
                    found, _ = prove_delta(aligned, expectation, files, may_round=may_round)
                    assert found is proven

    def test_a_cast_that_rounds(self, tmp_path: Path) -> None:
        source = write_released_adapter(tmp_path / "source", fill=normal, dtype="F32")
        conversion = plan_with(source, "vllm", Options(dtype="BF16"))
        assert found_by(write_conversion(conversion, tmp_path / "out")) == {Proven.ROUNDED}

    def test_a_cast_that_is_exact(self, tmp_path: Path) -> None:
        source = write_released_adapter(tmp_path / "source", fill=normal)
        conversion = plan_with(source, "vllm", Options(dtype="F32"))
        assert found_by(write_conversion(conversion, tmp_path / "out")) == {Proven.EQUAL}

    def test_numbers_that_vanish_in_a_cast(self, tmp_path: Path) -> None:
        def shrink(tensors: Tensors) -> None:
            for name in tensors:
                if ".lora_B." in name:
                    tensors[name][..., 0] *= 1e-12

        source = write_released_adapter(tmp_path / "source", fill=normal, dtype="F32", edit=shrink)
        conversion = plan_with(source, "vllm", Options(dtype="F16"))
        proof = write_conversion(conversion, tmp_path / "out")
        assert found_by(proof) == {Proven.RE_EVALUATED}

    @pytest.mark.parametrize(
        ("alpha", "proven"), [(16, Proven.EQUAL), (7, Proven.ROUNDED)], ids=["exact", "rounded"]
    )
    def test_a_folded_scaling(self, tmp_path: Path, alpha: float, proven: Proven) -> None:
        source = write_released_adapter(tmp_path / "source", alpha=alpha, fill=normal)
        conversion = plan_with(source, "sglang", Options(fold_scaling=True))
        assert found_by(write_conversion(conversion, tmp_path / "out")) == {proven}


def test_numbers_that_are_none_are_proven_by_their_bits(tmp_path: Path) -> None:
    source = write_released_adapter(tmp_path / "source", fill=any_bits)
    proof = write_conversion(plan(source, "peft", SPEC), tmp_path / "out", verification=ALL)
    assert found_by(proof) == {Proven.BYTES, Proven.EQUAL}


def test_groups_that_are_dropped_are_not_missed(tmp_path: Path) -> None:
    source = write_released_adapter(tmp_path / "source")
    options = Options(dropped=frozenset({Group.ROUTED, Group.HEAD}))
    proof = write_conversion(
        plan_with(source, "tinker", options), tmp_path / "out", verification=ALL
    )
    assert found_by(proof) == {Proven.BYTES}


def test_rows_of_the_head_that_are_cut_by_force_are_not_missed(tmp_path: Path) -> None:
    head = {"groups": {"head"}, "head_rows": "padded", "fill": normal}
    source = write_released_adapter(tmp_path / "source", **head)
    conversion = plan_with(source, "sglang", Options(force=True))
    proof = write_conversion(conversion, tmp_path / "out", verification=ALL)
    assert found_by(proof) == {Proven.BYTES}


def test_what_is_resized_is_proven_by_a_second_evaluation(tmp_path: Path) -> None:
    source = write_released_adapter(tmp_path / "source", fill=normal, rank=4)
    resize(source, tmp_path / "out", TINY, TargetRank(rank=2))
    assert set(read_record(tmp_path / "out").modules.values()) == {Proven.RE_EVALUATED}


@pytest.mark.parametrize("verification", [ALL, COMPUTED])
@pytest.mark.parametrize("letter", ["A", "B", "AB"])
def test_a_resized_delta_must_be_a_part_of_the_source_s(
    tmp_path: Path, letter: str, verification: Verification
) -> None:
    source = read_adapter(write_released_adapter(tmp_path / "source", fill=normal, rank=4))
    destination = Destination(require_target("vllm"), SPEC)
    first, second = (f"language_model.layers.{layer}.attn.wq_du" for layer in (1, 3))
    with CoefficientStore() as store:
        plan = plan_adapter_resize(source, TargetRank(rank=3), destination, CONTENTS, store)
        wrong = exchange(plan.conversion, first, second, letter)
        account = Account(Action.RESIZE, (source,))
        with pytest.raises(InklingError, match=r"layers\.1\.attn\.wq_du` is no part of that of"):
            write_conversion(wrong, tmp_path / "out", account=account, verification=verification)
        write_conversion(plan.conversion, tmp_path / "out", account=account)


def test_a_sum_is_proven_by_a_second_evaluation(tmp_path: Path) -> None:
    sources = [write_released_adapter(tmp_path / name, fill=normal) for name in "ab"]
    merge(sources, [1.0, 0.5], tmp_path / "out", to="vllm")
    assert set(read_record(tmp_path / "out").modules.values()) == {Proven.RE_EVALUATED}


def exchange(conversion: Conversion, first: str, second: str, letters: str = "AB") -> Conversion:
    """Return a plan that writes the numbers of two modules of one shape into each other's place."""
    outputs = {output.spec.name: output for output in conversion.outputs}
    for letter in letters:
        one, other = (f"{name}.lora_{letter}.weight" for name in (first, second))
        outputs[one], outputs[other] = (
            Output(outputs[one].spec, outputs[other].array),
            Output(outputs[other].spec, outputs[one].array),
        )
    return replace(conversion, outputs=tuple(outputs.values()))


def mix_up_names(conversion: Conversion) -> Conversion:
    routed = "language_model.layers.2.mlp.experts"
    return exchange(conversion, f"{routed}.w1", f"{routed}.w3")


def mix_up_rows(conversion: Conversion) -> Conversion:
    """Write the dense gate and up as they are, where vLLM has their rows in turn."""
    outputs = []
    for output in conversion.outputs:
        if isinstance(output.array, Interleave):
            (stored,) = iter_reads(output.array)
            output = Output(output.spec, stored)
        outputs.append(output)
    return replace(conversion, outputs=tuple(outputs))


def change_scaling(conversion: Conversion) -> Conversion:
    return replace(conversion, config=conversion.config | {"lora_alpha": 12})


def lose_a_module(conversion: Conversion) -> Conversion:
    kept = [output for output in conversion.outputs if not output.spec.name.startswith(QUERY)]
    return replace(conversion, outputs=tuple(kept))


@pytest.mark.parametrize("verification", [ALL, COMPUTED])
@pytest.mark.parametrize(
    ("spoil", "site"),
    [
        (mix_up_names, "layers.2.mlp.experts.w1"),
        (mix_up_rows, "layers.0.mlp.gate"),
        (change_scaling, "lm_head"),
        (lose_a_module, "layers.1.attn.wq_du"),
    ],
)
def test_a_plan_that_is_wrong_writes_nothing(
    tmp_path: Path,
    spoil: Callable[[Conversion], Conversion],
    site: str,
    verification: Verification,
) -> None:
    source = write_released_adapter(tmp_path / "source", fill=normal)
    conversion = spoil(plan(source, "vllm", SPEC))
    with pytest.raises(InklingError, match="the result is not proven") as caught:
        write_conversion(conversion, tmp_path / "out", verification=verification)
    assert f"the delta of `{site}` is " in caught.value.message
    assert "away from that of" in caught.value.message
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_a_surplus_module_must_be_zero(tmp_path: Path) -> None:
    source = write_released_adapter(tmp_path / "source", fill=normal)
    conversion = plan(source, "tinker", SPEC)
    fewer = {site: pair for site, pair in conversion.pairs.items() if "wq_du" not in str(site)}
    account = Account(Action.MERGE, (conversion.source,))
    with pytest.raises(InklingError, match="wq_du"):
        write_conversion(replace(conversion, pairs=fewer), tmp_path / "out", account=account)


@pytest.mark.parametrize("dialect", ["vllm", "peft"])
def test_bytes_that_changed_on_the_disk_are_found(tmp_path: Path, dialect: str) -> None:
    source = write_released_adapter(tmp_path / "source", fill=normal)
    conversion = plan(source, dialect, SPEC)
    write_conversion(conversion, tmp_path / "out", verification=NONE)
    digests = {n: t.sha256 for n, t in read_record(tmp_path / "out").tensors.items()}
    account = Account(Action.CONVERT, (conversion.source,))
    assert Proven.NOTHING not in found_by(
        prove(conversion, account, tmp_path / "out", digests, ALL)
    )
    weights = read_adapter(tmp_path / "out").file
    for name in sorted(weights.tensors)[:: len(weights.tensors) // 9]:
        data = bytearray(weights.path.read_bytes())
        data[weights.tensors[name].start + 1] ^= 1
        copy = tmp_path / f"copy-{weights.tensors[name].start}"
        copy.mkdir()
        (copy / "adapter_model.safetensors").write_bytes(data)
        config = (tmp_path / "out" / "adapter_config.json").read_bytes()
        (copy / "adapter_config.json").write_bytes(config)
        with pytest.raises(InklingError, match="the result is not proven"):
            prove(conversion, account, copy, digests, ALL)


def test_the_last_check_may_still_refuse(tmp_path: Path) -> None:
    conversion = plan(write_released_adapter(tmp_path / "source"), "vllm", SPEC)
    seen: list[list[str]] = []

    def refuse(folder: Path) -> None:
        seen.append(sorted(path.name for path in folder.iterdir()))
        raise InklingError("no")

    with pytest.raises(InklingError, match="no"):
        write_conversion(conversion, tmp_path / "out", last_check=refuse)
    assert seen == [["adapter_config.json", "adapter_model.safetensors"]]
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_a_source_is_never_replaced(tmp_path: Path) -> None:
    first, second = (read_adapter(write_released_adapter(tmp_path / name)) for name in "ab")
    conversion = plan(first.path, "vllm", SPEC)
    account = Account(Action.MERGE, (first, second))
    with pytest.raises(InklingError, match=r"is the folder .* that is being read"):
        write_conversion(conversion, second.path, overwrite=True, account=account)
