"""Words of a command → launch: programs, wrappers, spellings, list options, the model."""

import pytest

from checks.launches import launch_of
from inkling_cli.checks.engine import Engine
from inkling_cli.checks.launch.launch import ProblemKind
from inkling_cli.checks.launch.options.table import Arity, option_table, words_of
from inkling_cli.checks.launch.parse.given import Given
from inkling_cli.checks.launch.parse.launches import parse_words
from inkling_runtime.errors import InklingError


@pytest.mark.parametrize(
    ("command", "engine", "model"),
    [
        ("vllm serve M", Engine.VLLM, "M"),
        ("/opt/venv/bin/vllm serve M", Engine.VLLM, "M"),
        ("vllm serve --model M", Engine.VLLM, "M"),
        ("vllm serve --enable-lora M", Engine.VLLM, "M"),
        ("python -m vllm.entrypoints.openai.api_server --model M", Engine.VLLM, "M"),
        ("python3 -m vllm.entrypoints.cli.main serve M", Engine.VLLM, "M"),
        ("docker run --gpus all vllm/vllm-openai:v0.33.0 --model M", Engine.VLLM, "M"),
        ("sglang serve M", Engine.SGLANG, "M"),
        ("sglang serve --model-path M", Engine.SGLANG, "M"),
        ("python -m sglang.launch_server --model M", Engine.SGLANG, "M"),
        ("numactl -N 0 nohup uv run vllm serve M", Engine.VLLM, "M"),
        ("env A=1 vllm serve M", Engine.VLLM, "M"),
    ],
)
def test_engine_and_model_are_recognised(command, engine, model):
    launch = launch_of(command)
    assert (launch.engine, launch.model) == (engine, model)
    assert launch.problems == ()


@pytest.mark.parametrize("command", ["", "ls -l", "vllm bench serve2", "python -m http.server"])
def test_other_commands_are_refused(command):
    with pytest.raises(InklingError):
        launch_of(command)


def test_bare_options_need_the_engine_said():
    launch = parse_words(["--model", "M", "--max-loras", "4"], Given(engine=Engine.VLLM))
    assert launch.model == "M"
    assert launch.integer("--max-loras") == 4


def test_said_engine_overrides_the_command():
    assert parse_words(["vllm", "serve", "M"], Given(engine=Engine.SGLANG)).engine is Engine.SGLANG


@pytest.mark.parametrize(
    "words", ["--max-loras 4", "--max-loras=4", "--max_loras 4", "--max_loras=4", "--max-loras=+4"]
)
def test_spellings_of_a_value_mean_the_same(words):
    launch = launch_of(f"vllm serve M {words}")
    assert launch.integer("--max-loras") == 4
    assert launch.problems == ()


@pytest.mark.parametrize(
    ("words", "is_on"),
    [
        ("", False),
        ("--enable-lora", True),
        ("--enable_lora", True),
        ("--no-enable-lora", False),
        ("--disable-lora", False),
        ("--enable-lora --disable-lora", False),
        ("--disable-lora --enable-lora", True),
    ],
)
def test_last_switch_counts(words, is_on):
    assert launch_of(f"vllm serve M {words}").is_on("--enable-lora") is is_on


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        ("-tp 8", "--tensor-parallel-size", "8"),
        ("-tp=8", "--tensor-parallel-size", "8"),
        ("-O3", "--optimization-level", "3"),
        ("-O 3", "--optimization-level", "3"),
        ("-O=3", "--optimization-level", "3"),
        ("--max-lora-ra 8", "--max-lora-rank", "8"),
        ("--max-cpu-loras -1", "--max-cpu-loras", "-1"),
        ("--speculative-config.method mtp", "--speculative-config.method", "mtp"),
        ("--speculative_config.num_tokens=3", "--speculative-config.num_tokens", "3"),
    ],
)
def test_short_abbreviated_and_dotted_options(words, name, value):
    launch = launch_of(f"vllm serve M {words}")
    assert launch.text(name) == value
    assert launch.problems == ()


def test_list_option_ends_at_the_next_option():
    launch = launch_of("vllm serve M --lora-modules a=/a b=/b --max-loras 2")
    assert [(ref.name, ref.path) for ref in launch.adapters] == [("a", "/a"), ("b", "/b")]
    assert launch.integer("--max-loras") == 2


def test_list_option_takes_the_model_after_it():
    launch = launch_of("vllm serve --lora-modules a=/a M")
    assert launch.model is None
    (problem,) = launch.problems_of(ProblemKind.MALFORMED_ADAPTER)
    assert problem.text == "M"


@pytest.mark.parametrize(
    ("value", "name", "path"),
    [
        ("a=/x", "a", "/x"),
        ("a=/x=y", "a", "/x=y"),
        ('\'{"name": "a", "path": "/x"}\'', "a", "/x"),
        ('\'{"name": "a", "path": "/x", "base_model_name": "m"}\'', "a", "/x"),
    ],
)
def test_vllm_adapter_forms(value, name, path):
    (ref,) = launch_of(f"vllm serve M --lora-modules {value}").adapters
    assert (ref.name, ref.path, ref.pinned) == (name, path, False)


@pytest.mark.parametrize(
    ("value", "name", "path", "pinned"),
    [
        ("/x", "/x", "/x", False),
        ("org/name", "org/name", "org/name", False),
        ("a=/x", "a", "/x", False),
        ('\'{"lora_name": "a", "lora_path": "/x"}\'', "a", "/x", False),
        ('\'{"lora_name": "a", "lora_path": "/x", "pinned": true}\'', "a", "/x", True),
    ],
)
def test_sglang_adapter_forms(value, name, path, pinned):
    (ref,) = launch_of(f"sglang serve M --lora-paths {value}").adapters
    assert (ref.name, ref.path, ref.pinned) == (name, path, pinned)


@pytest.mark.parametrize("value", ["=x", "a=", "[1]", "{}", '\'{"name": 1, "path": "/x"}\'', "'{'"])
def test_malformed_adapters_are_problems(value):
    launch = launch_of(f"vllm serve M --lora-modules {value}")
    assert launch.adapters == ()
    assert len(list(launch.problems_of(ProblemKind.MALFORMED_ADAPTER))) == 1


def test_assignments_that_reach_the_program_are_variables():
    launch = launch_of("env A=1 docker run -e B=2 --env=C=3 -e D=4 vllm serve M E=5")
    assert {name: launch.variable(name) for name in "ABCDE"} == {
        "A": None,
        "B": "2",
        "C": "3",
        "D": "4",
        "E": None,
    }


def test_image_tag_tells_the_version():
    launch = launch_of("docker run vllm/vllm-openai:v0.32.1 --model M")
    assert launch.image_version == "0.32.1"


def test_sglang_takes_the_model_only_as_the_first_word():
    launch = launch_of("sglang serve --enable-lora M")
    assert launch.model is None
    assert [p.text for p in launch.problems_of(ProblemKind.STRAY_ARGUMENT)] == ["M"]


def test_sglang_refuses_underscores_but_they_are_understood():
    launch = launch_of("sglang serve M --max_lora_rank 8")
    assert [p.text for p in launch.problems_of(ProblemKind.UNDERSCORE_OPTION)] == [
        "--max_lora_rank"
    ]
    assert launch.integer("--max-lora-rank") == 8


def test_words_after_a_double_dash_are_no_options():
    launch = launch_of("vllm serve -- M --enable-lora")
    assert launch.model == "M"
    assert not launch.is_on("--enable-lora")


@pytest.mark.parametrize("engine", list(Engine))
def test_every_option_of_the_table_parses_back(engine):
    table = option_table(engine)
    for spelling, (spec, enabled) in table.spellings.items():
        match = table.match(spelling)
        assert (match.spec, match.enabled) == (spec, enabled)
        assert spec.arity is Arity.NONE or enabled
        value = spec.choices[0] if spec.choices else "1"
        words = [engine.value, "serve", "M", spelling]
        words += [] if spec.arity is Arity.NONE else [value]
        if spec.name in (engine.adapters_option, engine.model_option):
            continue
        launch = parse_words(words)
        assert launch.problems == ()
        assert launch.use(spec.name) is not None


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("0.32.0", ("--old", "--both")),
        ("0.33.0", ("--both", "--new")),
        ("0.33.5", ("--both", "--new")),
        ("0.40", ("--both", "--new", "--newest")),
    ],
)
def test_words_of_a_table_hold_for_their_versions(version, words):
    table = "--old<0.33.0 --both --new>=0.33.0 --newest>=0.34"
    assert words_of(table, version) == words


@pytest.mark.parametrize("engine", Engine)
def test_a_version_takes_the_newest_table_that_is_not_newer(engine):
    assert option_table(engine, "999.0") == option_table(engine, engine.known_version)
    assert engine.described_version("999.0") == engine.known_version
    assert engine.described_version("0.0.1") == engine.known_versions[0]
    assert engine.described_version("nightly") == engine.known_version
