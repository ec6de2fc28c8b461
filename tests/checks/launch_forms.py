"""The same launch in every form: a command's words → a script, containers, a file of options."""

import json
import re
import shlex

import yaml

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.launch.options.table import Arity, option_table


def split_command(command: str) -> tuple[dict[str, str], list[str]]:
    """Return the variables in front of a command, and its words."""
    words = shlex.split(command)
    count = next(i for i, word in enumerate(words) if not re.match(r"[A-Za-z_]\w*=", word))
    return dict(word.split("=", 1) for word in words[:count]), words[count:]


def as_script(command: str) -> tuple[str, str]:
    variables, words = split_command(command)
    lines = ["#!/bin/bash", "# serves", "set -e", ""]
    lines += [f"export {name}={shlex.quote(value)}  # set" for name, value in variables.items()]
    lines.append(" \\\n    ".join(_options_apart(words)) + "  # the end")
    return "serve.sh", "\n".join([*lines, "echo done", ""])


def as_crlf_script(command: str) -> tuple[str, str]:
    name, text = as_script(command)
    return name, text.replace("\n", "\r\n")


def as_script_with_array(command: str) -> tuple[str, str]:
    variables, words = split_command(command)
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    start, *options = _options_apart(words)
    items = "\n".join(f"  {option}  # {i}" for i, option in enumerate(options))
    return "serve.sh", f'{exports}ARGS=(\n{items}\n)\nexec {start} "${{ARGS[@]}}" > log 2>&1\n'


def as_script_with_text(command: str) -> tuple[str, str] | None:
    """Put the options into one variable; only words that need no quotes can stand there."""
    variables, words = split_command(command)
    start, *options = _options_apart(words)
    if any("'" in option or '"' in option for option in options):
        return None
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    return "serve.sh", f'{exports}ARGS="{" ".join(options)}"\n{start} $ARGS\n'


def as_compose_text(command: str) -> tuple[str, str]:
    variables, words = split_command(command)
    lines = ["services:", "  server:  # ours", "    image: x", "    command: >-"]
    lines += [f"      {line}".replace("$", "$$") for line in _options_apart(words)]
    if variables:
        lines += ["    environment:"]
        lines += [f"      - {name}={value}  # set" for name, value in variables.items()]
    return "compose.yaml", "\n".join([*lines, "    ports: ['8000:8000']", ""])


def as_compose_list(command: str) -> tuple[str, str]:
    variables, words = split_command(command)
    lines = ["services:", "  server:", "    image: x", f"    command: {json.dumps(words)}"]
    lines += [f"    environment: {json.dumps(variables)}"] if variables else []
    return "compose.yaml", "\n".join([*lines, "    ports: ['8000:8000']", ""]).replace("$", "$$")


def as_kubernetes(command: str) -> tuple[str, str]:
    variables, words = split_command(command)
    lines = ["apiVersion: v1", "kind: Pod", "spec:", "  containers:", "  - name: server"]
    lines += ["    command:", "    - vllm" if words[0] == "vllm" else "    - sglang", "    - serve"]
    lines += ["    args:  # of the server"]
    lines += [f"    - {json.dumps(word)}" for word in words[2:]]
    if variables:
        lines += ["    env:"]
        for name, value in variables.items():
            lines += [f"    - name: {name}", f"      value: {json.dumps(value)}"]
    return "pod.yaml", "\n".join([*lines, "    resources: {}", ""])


def as_kubernetes_shell(command: str) -> tuple[str, str]:
    variables, words = split_command(command)
    lines = ["apiVersion: v1", "kind: Pod", "spec:", "  containers:", "  - name: server"]
    lines += ['    command: ["/bin/bash", "-c"]', "    args:", "    - |"]
    lines += ["      set -e"]
    lines += [f"      export {name}={shlex.quote(value)}" for name, value in variables.items()]
    lines += ["      " + " \\\n        ".join(_options_apart(words)), "      echo done"]
    return "pod.yaml", "\n".join([*lines, ""])


def as_notes(command: str, *, is_json: bool = False) -> tuple[str, str] | None:
    """Return a file of options and `env`; None for words that such a file cannot say."""
    variables, words = split_command(command)
    engine = Engine(words[0])
    options: dict[str, object] = {"model" if engine is Engine.VLLM else "model-path": words[2]}
    for option in _options_apart(words)[1:]:
        name, *values = shlex.split(option)
        spec = option_table(engine).match(name).spec
        if "=" in name or spec is None or name.lstrip("-") in options or name.startswith("--no-"):
            return None
        value: object = values if spec.arity is Arity.MANY else values[0] if values else True
        if spec.arity is Arity.NONE and values:
            return None
        options[name.lstrip("-")] = int(value) if str(value).isdigit() else value
    content = {**options, "env": variables or {"NOTHING": "x"}}
    if is_json:
        return "launch.json", json.dumps(content, indent="\t") + "\n"
    return "launch.yaml", "# ours\n" + yaml.safe_dump(content, sort_keys=False)


def as_json(command: str) -> tuple[str, str] | None:
    return as_notes(command, is_json=True)


FORMS = (
    as_script,
    as_crlf_script,
    as_script_with_array,
    as_script_with_text,
    as_compose_text,
    as_compose_list,
    as_kubernetes,
    as_kubernetes_shell,
    as_notes,
    as_json,
)


def _options_apart(words: list[str]) -> list[str]:
    """Return the command with its model, then each option with its values, quoted."""
    groups: list[list[str]] = [[]]
    for word in words:
        if word.startswith("--"):
            groups.append([])
        groups[-1].append(word)
    return [shlex.join(group) for group in groups]
