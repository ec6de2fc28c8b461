"""`--fix`: every finding with a remedy is remedied in every form, and nothing else changes."""

import difflib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checks.launch_case import Case
from checks.launch_cases import CASES
from checks.launch_forms import FORMS
from checks.test_parse_properties import PIECES, TEXTS
from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Location, Severity
from inkling_cli.checks.launch.fix.fixing import Fixed, fix_text
from inkling_cli.checks.launch.judge import Judge, Judged
from inkling_cli.checks.launch.parse.adapter_refs import parse_given_adapters
from inkling_cli.checks.launch.parse.given import Given
from inkling_cli.checks.launch.parse.launches import parse_launches
from inkling_runtime.errors import InklingError


def fix(text: str, name: str, lora: tuple[str, ...] = (), beside=None, engine=None) -> Fixed:
    adapters = parse_given_adapters(lora, Location(key="--lora"))
    given = Given(engine=engine)
    judge = Judge(given, None, adapters)

    def judge_text(changed: str) -> tuple[Judged, ...]:
        return judge.launches(parse_launches(changed, name, given, (beside or {}).get))

    return fix_text(text, judge_text)


def changed_lines(before: str, after: str) -> list[str]:
    """Return the lines that were removed and added, with `-` and `+`."""
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    return [line[0] + line[2:] for line in lines if line[0] in "+-"]


def fill(case: Case, text: str, world) -> str:
    return text.format(root=world, model=world / "model", adapters=world / "adapters")


def engine_of(case: Case) -> Engine:
    return Engine.SGLANG if "sglang serve" in case.broken else Engine.VLLM


COMMANDS = [case for case in CASES if case.file is None and not case.engine_version]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
@pytest.mark.parametrize("case", COMMANDS, ids=lambda case: case.code)
def test_every_remedy_is_made_in_every_form(case, form, world):
    written = form(fill(case, case.broken, world))
    if written is None:
        pytest.skip("this launch cannot be written so")
    name, text = written
    lora = tuple(fill(case, value, world) for value in case.lora)
    fixed = fix(text, name, lora, engine=engine_of(case))
    left = {finding.code for judged in fixed.judged for finding in judged.findings}
    done = {finding.code for finding in fixed.fixed}
    assert not done & left
    if case.code not in done:
        rest = [f for judged in fixed.judged for f in judged.findings if f.code == case.code]
        assert not rest or all(f.change is None or f.severity is Severity.INFO for f in rest)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
@pytest.mark.parametrize("case", COMMANDS, ids=lambda case: case.code)
def test_clean_launches_stay_as_they_are(case, form, world):
    written = form(fill(case, case.clean, world))
    if written is None:
        pytest.skip("this launch cannot be written so")
    name, text = written
    lora = tuple(fill(case, value, world) for value in case.lora)
    fixed = fix(text, name, lora, engine=engine_of(case))
    if not fixed.fixed:
        assert fixed.text == text


BEFORE_AND_AFTER = [
    (
        "serve.sh",
        None,
        "vllm serve org/Inkling --enable-lora",
        ["+export INKLING_MULTIMEM_AR=0"],
    ),
    (
        "serve.sh",
        None,
        "if true; then vllm serve org/Inkling --enable-lora; fi",
        [
            "-if true; then vllm serve org/Inkling --enable-lora; fi",
            "+if true; then INKLING_MULTIMEM_AR=0 vllm serve org/Inkling --enable-lora; fi",
        ],
    ),
    (
        "serve.sh",
        None,
        "INKLING_MULTIMEM_AR=1\nvllm serve org/Inkling --enable-lora",
        ["-INKLING_MULTIMEM_AR=1", "+export INKLING_MULTIMEM_AR=0"],
    ),
    (
        "serve.sh",
        None,
        "docker run --gpus all \\\n  vllm/vllm-openai --model org/Inkling --enable-lora",
        [
            "-  vllm/vllm-openai --model org/Inkling --enable-lora",
            "+  -e INKLING_MULTIMEM_AR=0 vllm/vllm-openai --model org/Inkling --enable-lora",
        ],
    ),
    ("serve.sh", None, "sudo vllm serve org/Inkling --enable-lora", []),
    ("serve.sh", None, "ssh host vllm serve org/Inkling --enable-lora", []),
    (
        "serve.sh",
        None,
        'R="24"  # rank\nINKLING_MULTIMEM_AR=0 vllm serve org/Inkling --max-lora-rank "$R" '
        "--enable-lora",
        [
            '-INKLING_MULTIMEM_AR=0 vllm serve org/Inkling --max-lora-rank "$R" --enable-lora',
            '+INKLING_MULTIMEM_AR=0 vllm serve org/Inkling --max-lora-rank "32" --enable-lora',
        ],
    ),
    (
        "serve.sh",
        None,
        "vllm serve M --seed 1 \\\n  --seed 2 \\\n  --port 1",
        ["-vllm serve M --seed 1 \\", "+vllm serve M \\"],
    ),
    (
        "serve.sh",
        None,
        "vllm serve M --enforce-eager=true --seed 2",
        ["-vllm serve M --enforce-eager=true --seed 2", "+vllm serve M --enforce-eager --seed 2"],
    ),
    (
        "launch.yaml",
        Engine.SGLANG,
        "model-path: M\nrandom_seed: 3  # why\n",
        ["-random_seed: 3  # why", "+random-seed: 3  # why"],
    ),
    (
        "x.env",
        None,
        "# ours\nexport INKLING_MULTIMEM_AR='1'  # why\nA=b",
        ["-export INKLING_MULTIMEM_AR='1'  # why", "+export INKLING_MULTIMEM_AR=0  # why"],
    ),
    (
        "launch.yaml",
        Engine.VLLM,
        "model: org/Inkling\nenable_lora: true\nmax_lora_rank: 24\nenv: {A: b}",
        [
            "-max_lora_rank: 24",
            "+max_lora_rank: 32",
            "-env: {A: b}",
            '+env: {A: b, INKLING_MULTIMEM_AR: "0"}',
        ],
    ),
    ("launch.yaml", Engine.VLLM, "model: org/Inkling\nenable-lora: true\n", []),
]


@pytest.mark.parametrize(("name", "engine", "before", "lines"), BEFORE_AND_AFTER)
def test_only_what_the_finding_names_changes(name, engine, before, lines):
    assert changed_lines(before, fix(before, name, engine=engine).text) == lines


def test_a_remedy_that_uncovers_another_finding_is_followed_up():
    fixed = fix("vllm serve org/Inkling --lora-modules a=/a", "serve.sh")
    assert {finding.code for finding in fixed.fixed} == {"VLM001", "VLM106"}
    assert "export INKLING_MULTIMEM_AR=0\n" in fixed.text
    assert "--enable-lora" in fixed.text


def test_a_variable_of_an_env_file_is_overridden_where_the_launch_stands():
    text = (
        "services:\n  s:\n    image: vllm/vllm-openai\n    env_file: a.env\n"
        "    command: --model org/Inkling --enable-lora\n"
    )
    fixed = fix(text, "compose.yaml", beside={"a.env": "INKLING_MULTIMEM_AR=1\n"})
    assert changed_lines(text, fixed.text) == [
        "+    environment:",
        '+      INKLING_MULTIMEM_AR: "0"',
    ]


@settings(max_examples=300, deadline=None)
@given(text=TEXTS, name=st.sampled_from(["x", "x.sh", "x.yaml", "x.json", "x.env"]))
def test_any_text_is_fixed_or_an_error(text, name):
    try:
        fixed = fix(text, name)
    except InklingError:
        return
    if not fixed.fixed:
        assert fixed.text == text
    again = fix(fixed.text, name)
    assert again.text == fixed.text


OPTIONS = st.sampled_from(
    """--enable-lora|--max-loras 0|--max-loras 4|--max-cpu-loras 2|--max-lora-rank 24|--seed 1
    --max_lora_rank=24|--fully-sharded-loras|--lora-dtype float16|--enforce-eager=true|$X
    --lora-modules a=/a|--moe-backend deep_gemm_mega_moe|"${A[@]}"|--served-model-name a b
    """.replace("\n", "|").split("|")
)
GAPS = st.sampled_from([" ", "  ", " \\\n  ", "\t", " \\\n\n"])


@settings(max_examples=300, deadline=None)
@given(
    ahead=st.lists(PIECES, max_size=3).map(" ".join),
    options=st.lists(st.tuples(GAPS, OPTIONS), max_size=8),
    form=st.sampled_from(
        ["{}", "X='--seed 2 --max-loras 0'\n{}", "A=(--seed 1\n --seed 3)\n{} # x"]
    ),
)
def test_any_command_is_fixed_to_rest(ahead, options, form):
    command = "vllm serve org/Inkling" + "".join(gap + option for gap, option in options)
    text = form.format(f"{ahead}\n{command}")
    try:
        fixed = fix(text, "x.sh")
    except InklingError:
        return
    assert fix(fixed.text, "x.sh").text == fixed.text
    left = [(f.code, f.message) for judged in fixed.judged for f in judged.findings]
    assert not {(f.code, f.message) for f in fixed.fixed} & set(left)
