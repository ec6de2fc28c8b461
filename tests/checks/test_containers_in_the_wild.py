"""Containers as people write them (in `containers/`): what is read, and what a fix changes."""

from pathlib import Path

import pytest

from checks.test_fixing import changed_lines, fix
from inkling_cli.checks.launch.judge import Judge
from inkling_cli.checks.launch.parse.launches import parse_launches

FOLDER = Path(__file__).parent / "containers"
MODEL = "org/Inkling"

LAUNCHES = {
    "deployment.yaml": [("server", "vllm", MODEL, 17)],
    "leader-worker-set.yaml": [("vllm-leader", "vllm", MODEL, 20)],
    "serving-runtime.yaml": [("kserve-container", "vllm", "/mnt/models", 28)],
    "helm.yaml": [("vllm", "vllm", MODEL, 17), ("a", "sglang", MODEL, 41)],
    "compose.yaml": [
        ("one", "vllm", MODEL, 20),
        ("two", "vllm", MODEL, 28),
        ("three", "vllm", MODEL, 39),
        ("four", "vllm", MODEL, 20),
        ("five", "sglang", MODEL, 47),
    ],
}

CHANGES = {
    "deployment.yaml": [
        '-          "vllm serve org/Inkling --trust-remote-code --enable-lora --max-loras 4 '
        '--max-cpu-loras 2"',
        '+          "vllm serve org/Inkling --trust-remote-code --enable-lora --max-loras 4 '
        '--max-cpu-loras 4"',
        "+        - name: INKLING_MULTIMEM_AR",
        '+          value: "0"',
    ],
    "leader-worker-set.yaml": [
        '-                value: "1"',
        '+                value: "0"',
        "-                 vllm serve org/Inkling --port 8080 --enable-lora --max-loras 4 "
        '--max-cpu-loras 2 --tensor-parallel-size 8"',
        "+                 vllm serve org/Inkling --port 8080 --enable-lora --max-loras 4 "
        '--max-cpu-loras 4 --tensor-parallel-size 8"',
    ],
    "serving-runtime.yaml": [
        "-        - --max-cpu-loras=2",
        "+        - --max-cpu-loras=4",
    ],
    "helm.yaml": ['-          - "2"', '+          - "4"'],
    "compose.yaml": [
        '-    INKLING_MULTIMEM_AR: "1"   # why',
        '+    INKLING_MULTIMEM_AR: "0"   # why',
        "-      --max-cpu-loras 2",
        "+      --max-cpu-loras 4",
        "-        exec vllm serve org/Inkling --enable-lora --max-lora-rank $$R",
        "+        exec vllm serve org/Inkling --enable-lora --max-lora-rank 32",
    ],
}

WRITTEN = {
    "as it is": str,
    "with CRLF": lambda text: text.replace("\n", "\r\n"),
    "without an end": lambda text: text.rstrip("\n"),
    "between markers": lambda text: f"%YAML 1.1\n---\n{text.removeprefix('---')}...\n",
    "after a comment": lambda text: f"# nôtre 🙂\n\n{text}",
}


def text_of(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(LAUNCHES))
def test_every_server_of_a_file_is_read_where_it_stands(name):
    launches = parse_launches(text_of(name), name)
    found = [(x.container, x.engine.value, x.model, x.at("--enable-lora").line) for x in launches]
    assert found == LAUNCHES[name]


@pytest.mark.parametrize("name", sorted(LAUNCHES))
def test_every_finding_names_file_line_and_key(name):
    lines = text_of(name).splitlines()
    for judged in Judge().launches(parse_launches(text_of(name), name)):
        for finding in judged.findings:
            place = finding.location
            assert place.file == name
            assert place.line
            assert place.key
            use = judged.subject.launch.use(place.key)
            if use is not None:
                assert use.spelled in lines[place.line - 1]


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize("name", sorted(LAUNCHES))
def test_a_fix_changes_the_lines_that_are_wrong_and_no_others(name, written):
    text = WRITTEN[written](text_of(name))
    assert changed_lines(text, fix(text, name).text) == CHANGES[name]
    assert fix(text, name).text.count("\r\n") in (0, fix(text, name).text.count("\n"))
