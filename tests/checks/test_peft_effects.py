"""What we say of an adapter on transformers' Inkling is what PEFT itself does with it."""

import json
import warnings
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from adapter.conversion import convert
from adapter.peft_models import base_model, observe
from checks.peft_agreement import SPECS, disagreement
from checks.peft_cases import FORMS, MUTATIONS, ROOTS, TRAINED, WRAPPER, random_case, source
from checks.peft_rule_cases import PEFT_CASES, write_peft_case
from factories import TINY, write_released_adapter
from inkling_cli.checks.adapter import Consumer, check_adapter, read_subject
from inkling_cli.checks.adapter.peft.effects import peft_effects
from inkling_cli.checks.adapter.peft.tree import ModuleKind, model_tree
from inkling_cli.checks.effect import Fate
from inkling_cli.checks.finding import Severity

NUM_RANDOM = 80
KINDS = tuple(ROOTS)
SOURCES = [*TRAINED, *FORMS]


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Tiny matrices gain nothing by more threads, and threads that wait cost the other tests."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def findings(folder: Path, kind: str):
    found = check_adapter(read_subject(folder, SPECS[kind]), [Consumer.PEFT])
    return [finding for finding in found if finding.code.startswith("PFA")]


def fates(folder: Path, kind: str | None) -> dict[Fate, int]:
    spec = None if kind is None else SPECS[kind]
    effects = peft_effects(read_subject(folder, spec))
    return {fate: n for fate in Fate if (n := sum(e.fate is fate for e in effects))}


@pytest.mark.parametrize("kind", KINDS)
def test_the_tree_is_that_of_transformers(kind):
    tree, model = model_tree(SPECS[kind]), base_model(kind)
    modules = {path: module for path, module in model.named_modules() if path}
    assert set(tree.modules) == set(modules)
    for path, ours in tree.modules.items():
        theirs = modules[path]
        is_linear = isinstance(theirs, torch.nn.Linear)
        assert (ours.kind is ModuleKind.LINEAR) == is_linear, path
        shapes = {n: tuple(p.shape) for n, p in theirs.named_parameters(recurse=False)}
        assert list(ours.parameters) == list(shapes), path
        if "tower" not in path:
            assert ours.parameters == shapes, path
            saved = theirs._non_persistent_buffers_set
            buffers = {n: tuple(b.shape) for n, b in theirs.named_buffers(recurse=False)}
            assert ours.buffers == {n: s for n, s in buffers.items() if n not in saved}, path


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SOURCES)
def test_a_sound_adapter_on_its_model(tmp_path, kind, name):
    made = source(kind, name)
    assert disagreement(made, tmp_path) is None
    if name in TRAINED:
        assert set(fates(tmp_path / "adapter", kind)) == {Fate.APPLIED}
        assert not [f for f in findings(tmp_path / "adapter", kind) if f.code != "PFA010"]
    else:
        assert set(fates(tmp_path / "adapter", kind)) == {Fate.DROPPED}
        assert [f.code for f in findings(tmp_path / "adapter", kind)] == ["PFA001"]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_every_float_is_taken(tmp_path, dtype):
    made = source("text", sorted(TRAINED)[0])
    made.tensors = {name: tensor.to(dtype) for name, tensor in made.tensors.items()}
    assert disagreement(made, tmp_path) is None
    assert set(fates(tmp_path / "adapter", "text")) == {Fate.APPLIED}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", sorted(TRAINED))
def test_an_adapter_of_the_other_model(tmp_path, kind, name):
    made = source(next(other for other in KINDS if other != kind), name)
    made.kind = kind
    assert disagreement(made, tmp_path) is None


@pytest.mark.parametrize("seed", range(NUM_RANDOM))
def test_a_random_adapter(tmp_path, seed):
    made = random_case(seed)
    assert disagreement(made, tmp_path) is None, made.made


def test_every_mutation_is_tried():
    tried = {name for seed in range(NUM_RANDOM) for name in random_case(seed).made}
    assert {mutation.__name__ for mutation in MUTATIONS} <= tried


@pytest.mark.parametrize("seed", range(0, 1000, 10))
def test_what_is_not_applied_is_told_as_an_error(tmp_path, seed):
    made = random_case(seed)
    folder = made.write(tmp_path / "a")
    told = [f for f in findings(folder, made.kind) if f.severity is Severity.ERROR]
    is_applied = set(fates(folder, made.kind)) <= {Fate.APPLIED}
    assert is_applied == (not told), made.made


@pytest.mark.parametrize("code", sorted(PEFT_CASES))
def test_one_defect_gives_exactly_its_code(tmp_path, code):
    folder = write_peft_case(code, tmp_path / "a")
    found = findings(folder, "mm")
    assert [finding.code for finding in found] == [code]
    assert all(finding.help for finding in found)


def test_the_trap_of_raw_names_is_counted(tmp_path):
    folder = write_peft_case("PFA003", tmp_path / "a")
    found = fates(folder, "mm")
    assert found == {Fate.APPLIED: 21, Fate.DROPPED: 20}
    observed = observe("mm", folder)
    tensors = load_file(folder / "adapter_model.safetensors")
    assert sum(bool(observed.places(tensor)) for tensor in tensors.values()) == 42


@pytest.mark.parametrize("kind", KINDS)
def test_the_mapping_of_prefixes_that_is_advised_loads_everything(tmp_path, kind):
    from peft import PeftModel

    made = source(next(other for other in KINDS if other != kind), "attention")
    folder = made.write(tmp_path / "a")
    (finding,) = findings(folder, kind)
    text = finding.help.partition("key_mapping=")[2].partition("`")[0]
    old, new = text.strip("{}").removeprefix("r").split(": ")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = PeftModel.from_pretrained(
            base_model(kind), folder, key_mapping={old.strip("'"): new.strip("'")}
        )
    held = [t for n, t in model.state_dict().items() if "lora_" in n]
    assert len(held) == len(made.tensors)
    for name, tensor in made.tensors.items():
        assert any(t.shape == tensor.shape and torch.equal(t, tensor.double()) for t in held), name


@pytest.mark.parametrize("name", SOURCES)
def test_without_a_model_nothing_is_called_applied(tmp_path, name):
    folder = source("mm", name).write(tmp_path / "a")
    found = fates(folder, None)
    assert Fate.APPLIED not in found
    assert set(found) == ({Fate.DROPPED} if name in FORMS else {Fate.NOT_CHECKED})


def test_without_a_model_no_module_is_dropped_that_a_model_may_have(tmp_path):
    for seed in range(40):
        made = random_case(seed)
        folder = made.write(tmp_path / str(seed))
        unsure = peft_effects(read_subject(folder, None))
        for kind in KINDS:
            sure = peft_effects(read_subject(folder, SPECS[kind]))
            for one, other in zip(unsure, sure, strict=True):
                if one.fate is Fate.DROPPED:
                    assert other.fate in (Fate.DROPPED, Fate.REFUSED), (made.made, one, other)


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(.*)*x", r"(?=(.*)*y).*", ".*" * 30 + "x", "(?!.*vision).*q_proj"]
)
def test_a_target_that_is_slow_to_match_does_not_hang(tmp_path, pattern):
    made = source("mm", "attention")
    made.config["target_modules"] = pattern
    folder = made.write(tmp_path / "a")
    found = fates(folder, "mm")
    expected = {"(?!": {Fate.APPLIED: 4, Fate.DROPPED: 16}, "(?=": {Fate.NOT_CHECKED: 20}}
    assert found == expected.get(pattern[:3], {Fate.REFUSED: 20})


def test_a_head_without_its_padded_rows_is_refused_and_the_conversion_advised(tmp_path):
    made = source("mm", "everything")
    name = f"{WRAPPER}lm_head.lora_B.weight"
    made.tensors[name] = made.tensors[name][: TINY.unpadded]
    assert disagreement(made, tmp_path) is None
    (finding,) = findings(tmp_path / "adapter", "mm")
    assert finding.code == "PFA007"
    assert "`inkling convert-adapter" in finding.help


@pytest.mark.parametrize("code", ["PFA002", "PFA009"])
def test_the_conversion_that_is_advised_repairs_it(tmp_path, code):
    folder = write_peft_case(code, tmp_path / "a")
    assert "--to peft" in findings(folder, "mm")[0].help
    convert(folder, "peft", tmp_path / "out", SPECS["mm"])
    assert set(fates(tmp_path / "out", "mm")) == {Fate.APPLIED}
    observed = observe("mm", tmp_path / "out")
    tensors = load_file(tmp_path / "out" / "adapter_model.safetensors")
    assert all(observed.places(tensor) for tensor in tensors.values())


def test_alpha_zero_is_applied_as_it_stands(tmp_path):
    made = source("mm", "attention")
    made.config["lora_alpha"] = 0
    assert disagreement(made, tmp_path) is None
    assert set(fates(tmp_path / "adapter", "mm")) == {Fate.APPLIED}


def test_the_order_of_patterns_in_the_file_decides(tmp_path):
    made = source("mm", "attention")
    for order in (("q_proj", "layers.1.self_attn.q_proj"), ("layers.1.self_attn.q_proj", "q_proj")):
        made.config["rank_pattern"] = dict(zip(order, (2, 3), strict=True))
        assert disagreement(made, tmp_path / order[0]) is None
        config = json.loads((tmp_path / order[0] / "adapter/adapter_config.json").read_text())
        assert list(config["rank_pattern"]) == list(order)


def test_the_released_form_names_the_command_that_repairs_it(tmp_path):
    folder = write_released_adapter(tmp_path / "a")
    (finding,) = findings(folder, "mm")
    assert finding.message.startswith("PEFT drops 41 of 41 modules")
    assert finding.help == f"`inkling convert-adapter {folder} --to peft --model MODEL -o OUT`"
