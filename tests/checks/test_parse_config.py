"""YAML and JSON files of options → launches, as the engines' own `--config` reads them."""

import json

import pytest

from checks.launches import launches_in
from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Location
from inkling_cli.checks.launch.launch import ProblemKind
from inkling_cli.checks.launch.parse.given import Given
from inkling_cli.checks.launch.parse.launches import parse_launches
from inkling_runtime.errors import InklingError


def vllm(text: str, file: str = "launch.yaml"):
    (launch,) = parse_launches(text, file, Given(engine=Engine.VLLM))
    return launch


def sglang(text: str, file: str = "launch.yaml"):
    (launch,) = parse_launches(text, file, Given(engine=Engine.SGLANG))
    return launch


def test_keys_have_lines_and_their_own_spelling():
    launch = vllm("model: M\n\nmax_loras: 4\nenable-lora: true\n")
    assert launch.at("--max-loras") == Location("launch.yaml", 3, "max_loras")
    assert launch.at("--enable-lora") == Location("launch.yaml", 4, "enable-lora")
    assert launch.at("--max-cpu-loras") == Location("launch.yaml", 1, "max-cpu-loras")
    assert launch.model == "M"


@pytest.mark.parametrize(
    ("entry", "is_on"),
    [("enable-lora: true", True), ("enable-lora: false", False), ("enable_lora: yes", True)],
)
def test_switches(entry, is_on):
    assert vllm(entry).is_on("--enable-lora") is is_on


def test_json_is_read_with_lines():
    launch = vllm('{\n  "model": "M",\n  "max-loras": 4\n}', "launch.json")
    assert launch.at("--max-loras").line == 3
    assert not launch.is_engine_config


@pytest.mark.parametrize(
    "entry",
    [
        "lora-modules: [a=/x]",
        "lora-modules:\n- a=/x",
        "lora-modules: {name: a, path: /x}",
        """lora-modules: ['{"name": "a", "path": "/x"}']""",
        "lora-modules: [{name: a, path: /x}]\nenv: {}",
    ],
)
def test_adapters_of_vllm(entry):
    (ref,) = vllm(entry).adapters
    assert (ref.name, ref.path) == ("a", "/x")


def test_mapping_in_a_list_is_no_json_to_vllm():
    launch = vllm("lora-modules: [{name: a, path: /x}]")
    assert len(list(launch.problems_of(ProblemKind.MALFORMED_ADAPTER))) == 1


@pytest.mark.parametrize("key", ["lora-paths: [a=/x]", "experts-shared-outer-loras: true"])
def test_some_options_are_not_readable_from_sglangs_config(key):
    launch = sglang(f"model-path: M\n{key}\n")
    assert len(list(launch.problems_of(ProblemKind.UNREADABLE_IN_CONFIG))) == 1


def test_notes_of_a_launch_may_hold_what_a_config_may_not():
    launch = sglang("model-path: M\nlora_paths: [a=/x]\nenv: {A: 1, B: true}\n")
    assert launch.problems == ()
    assert launch.adapters[0].name == "a"
    assert (launch.variable("A"), launch.variable("B")) == ("1", "true")


@pytest.mark.parametrize(
    ("text", "engine"),
    [
        ("model: M\nenable-lora: true\nmax-cpu-loras: 2\n", Engine.VLLM),
        ("model-path: M\nmax-loras-per-batch: 2\n", Engine.SGLANG),
    ],
)
def test_engine_is_told_by_the_options(text, engine):
    (launch,) = launches_in(text, "launch.yaml")
    assert launch.engine is engine


def test_engine_that_cannot_be_told_is_an_error():
    with pytest.raises(InklingError, match="does not tell which engine"):
        launches_in("port: 80\n", "launch.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("# nothing\n", "is empty"),
        ("[a, b]", "a list"),
        ("justtext", "a single value"),
        ("a: [1", "not readable as YAML"),
        ("a: !!python/object:os.system x", "not readable as YAML"),
        ("a: \x01", "not readable as YAML"),
        ("some key: 1", "no option's name"),
        ("env: 3\nseed: 1", "not a mapping"),
        ("a: &a [*a]", "more than"),
        ("a: " + "[" * 5000, "nested too deeply"),
    ],
)
def test_malformed_files_are_errors(text, message):
    with pytest.raises(InklingError, match=message):
        parse_launches(text, "launch.yaml", Given(engine=Engine.VLLM))


def test_aliases_do_not_multiply_without_end():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 8)}]" for i in range(1, 12)]
    with pytest.raises(InklingError, match="more than"):
        vllm("\n".join(lines))


def test_nested_values_become_json():
    launch = vllm("compilation-config: {pass_config: {x: true}}")
    assert json.loads(launch.text("--compilation-config") or "") == {"pass_config": {"x": True}}


def test_file_without_suffix_is_a_script_or_a_config():
    assert launches_in("vllm serve M", "launch")[0].model == "M"
    assert launches_in("model: M\nmax-cpu-loras: 1", "launch")[0].model == "M"
