"""Compose files, Kubernetes manifests and env files → launches."""

import pytest

from checks.launches import launches_in
from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Location
from inkling_cli.checks.launch.launch import LaunchForm, ProblemKind
from inkling_cli.checks.launch.parse.given import Given
from inkling_cli.checks.launch.parse.launches import parse_launches
from inkling_runtime.errors import InklingError

COMPOSE = """\
services:
  db:
    image: postgres
  vllm:
    image: vllm/vllm-openai:v0.33.0
    command: >
      --model M --enable-lora
      --max-loras 4
    environment:
      INKLING_MULTIMEM_AR: 0
  sglang:
    image: lmsysorg/sglang:v0.5.23-cu129
    entrypoint: [python3, -m, sglang.launch_server]
    command: ["--model-path", "M", "--lora-paths", "a=/a", "b=/b"]
    environment:
      - SGLANG_LORA_CONFIG_DIR=/x
"""


def compose(service: str, beside=None) -> list:
    text = "services:\n  s:\n" + "".join(f"    {line}\n" for line in service.splitlines())
    return list(parse_launches(text, "compose.yaml", Given(), (beside or {}).get))


def test_services_that_start_servers_are_launches():
    vllm, sglang = launches_in(COMPOSE, "compose.yaml")
    assert (vllm.engine, vllm.model, vllm.integer("--max-loras")) == (Engine.VLLM, "M", 4)
    assert vllm.variable("INKLING_MULTIMEM_AR") == "0"
    assert vllm.image_version == "0.33.0"
    assert vllm.at("--max-loras") == Location("compose.yaml", 8, "--max-loras")
    assert vllm.at("INKLING_MULTIMEM_AR").line == 10
    assert (sglang.engine, sglang.model) == (Engine.SGLANG, "M")
    assert [adapter.name for adapter in sglang.adapters] == ["a", "b"]
    assert sglang.variable("SGLANG_LORA_CONFIG_DIR") == "/x"
    assert sglang.image_version == "0.5.23-cu129"
    assert [launch.container for launch in (vllm, sglang)] == ["vllm", "sglang"]
    assert vllm.form is LaunchForm.COMPOSE


@pytest.mark.parametrize(
    "service",
    [
        "image: vllm/vllm-openai\ncommand: --model M --seed 3",
        "image: vllm/vllm-openai\ncommand: M --seed=3",
        'image: x\ncommand: vllm serve "M" --seed 3',
        "image: x\ncommand: [vllm, serve, M, --seed, 3]",
        "image: x\nentrypoint: vllm serve\ncommand: M --seed 3",
        "build: .\nentrypoint: [bash, -c]\ncommand: ['vllm serve M --seed 3']",
        "image: x\ncommand: sh -c 'exec vllm serve M --seed 3'",
        'image: x\ncommand: |\n  bash -lc "vllm serve M --seed 3"',
        "image: x\nentrypoint: /bin/bash\ncommand:\n  - -c\n  - |\n    vllm serve M \\\n"
        "      --seed 3",
        "image: vllm/vllm-openai\ncommand: M --seed ${SEED:-3}",
        'image: vllm/vllm-openai\ncommand: ["M", "--seed", "${SEED-3}"]',
    ],
)
def test_all_ways_to_say_a_command_are_one(service):
    (launch,) = compose(service)
    assert (launch.engine, launch.model, launch.text("--seed")) == (Engine.VLLM, "M", "3")
    assert not launch.problems


def test_another_program_in_the_image_is_no_launch():
    with pytest.raises(InklingError, match="no container"):
        compose("image: vllm/vllm-openai\nentrypoint: sleep\ncommand: infinity")


@pytest.mark.parametrize(
    ("environment", "value"),
    [
        ("environment:\n  A: x", "x"),
        ("environment:\n  - A=x", "x"),
        ("environment: {A: true}", "true"),
        ("environment:\n  A: ${B}", "from-dot-env"),
        ("environment: [A]", "inherited"),
        ("environment:\n  A:", "inherited"),
        ("environment:\n  A: a$$b", "a$b"),
        ("env_file: one.env", "one"),
        ("env_file: [one.env, two.env]", "two"),
        ("env_file:\n  - path: one.env\n    required: false", "one"),
        ("env_file: one.env\nenvironment: [A=x]", "x"),
    ],
)
def test_variables_come_from_where_compose_takes_them(environment, value):
    beside = {
        ".env": "B=from-dot-env\nA=inherited\n",
        "one.env": "# first\nA=one\n",
        "two.env": 'export A="two" # second\n',
    }
    (launch,) = compose(f"image: vllm/vllm-openai\ncommand: M\n{environment}", beside)
    assert launch.variable("A") == value


def test_names_without_a_value_are_said():
    (launch,) = compose("image: vllm/vllm-openai\ncommand: M --seed ${SEED}")
    (problem,) = launch.problems_of(ProblemKind.UNKNOWN_SHELL_VALUE)
    assert problem.text == "SEED"


DEPLOYMENT = """\
# what runs
apiVersion: v1
kind: ConfigMap
data: {a: b}
---
apiVersion: apps/v1
kind: Deployment
spec:
  template:
    spec:
      initContainers:
      - name: fetch
        command: [vllm, serve, NOT-THIS]
      containers:
      - name: server
        image: vllm/vllm-openai:v0.33.0
        args:
        - --model=M
        - --seed
        - "$(SEED)"
        env:
        - name: SEED
          value: "3"
        - name: SECRET
          valueFrom: {secretKeyRef: {name: a, key: b}}
---
apiVersion: v1
kind: Pod
spec:
  containers:
  - command: ["/bin/bash", "-c"]
    args: ["python -m sglang.launch_server --model-path N --random-seed $SEED"]
    env: [{name: SEED, value: "4"}]
"""


def test_manifests_are_read_wherever_their_containers_stand():
    vllm, sglang = launches_in(DEPLOYMENT, "k8s.yaml")
    assert (vllm.model, vllm.text("--seed"), vllm.container) == ("M", "3", "server")
    assert vllm.at("--seed") == Location("k8s.yaml", 19, "--seed")
    assert vllm.at("SEED").line == 23
    assert (sglang.engine, sglang.model) == (Engine.SGLANG, "N")
    assert sglang.text("--random-seed") == "4"
    assert sglang.form is LaunchForm.KUBERNETES


def test_stdin_is_recognised_by_its_content():
    assert launches_in(DEPLOYMENT, "<stdin>")[0].form is LaunchForm.KUBERNETES
    assert launches_in(COMPOSE, "<stdin>")[0].form is LaunchForm.COMPOSE
    assert launches_in("VLLM_X=1\n", "<stdin>")[0].form is LaunchForm.ENV_FILE
    assert launches_in("vllm serve M\n", "<stdin>")[0].form is LaunchForm.SCRIPT


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=x", "x"),
        ("A = x", "x"),
        ("export A=x", "x"),
        ("A='x y'", "x y"),
        ('A="x\\ny"', "x\ny"),
        ("A=x # why", "x"),
        ("A=x#y", "x#y"),
        ("A=", ""),
        ("A=1\nA=2", "2"),
        ("A=1\nHANDED_ON", "1"),
        ("# A=3\n\nA=x\r", "x"),
    ],
)
def test_lines_of_an_env_file(line, value):
    (launch,) = launches_in(f"VLLM_X=1\n{line}\n", ".env")
    assert launch.variable("A") == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A=1\n", "no variable of either"),
        ("VLLM_A=1\nSGLANG_B=2\n", "variables of both"),
        ("VLLM_A=1\nnon sense\n", "env:2` is `non sense`, expected `NAME=value`"),
    ],
)
def test_env_files_that_tell_nothing_are_errors(text, message):
    with pytest.raises(InklingError, match=message):
        launches_in(text, "x.env")
