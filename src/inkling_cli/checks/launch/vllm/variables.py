"""Rules over the names and values of the environment variables that vLLM reads."""

import difflib
from collections.abc import Iterator

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.advice import launch_defect
from inkling_cli.checks.launch.launch import Variable, parse_integer
from inkling_cli.checks.launch.options.table import parse_number
from inkling_cli.checks.launch.parse.arguments import is_unknown
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.launch.vllm import variable_names as names
from inkling_cli.checks.launch.vllm.environment import DUAL_STREAM
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage
from inkling_runtime.errors import format_names

_INTEGERS = frozenset(names.INTEGERS.split())
_NUMBERS = frozenset(names.NUMBERS.split())
_KNOWN = (*_INTEGERS, *_NUMBERS, *names.CHOICES, *names.OTHERS.split(), *names.OF_INKLING.split())
_VALIDATION = "--fail-on-environ-validation"
_EXACT = {
    "INKLING_GFX950_GLUON": ("0", "1"),
    "INKLING_SPLIT_KV": ("0", "1"),
    "LAMPORT_RS_SCONV": ("0", "1"),
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": ("0", "1", "false", "true"),
    "VLLM_USE_BREAKABLE_CUDAGRAPH": ("0", "1"),
}
"""Variables of which vLLM understands these texts alone, and takes any other for one of them."""
_MEANT = {
    **dict.fromkeys(("false", "off", "no", "n", "f"), "0"),
    **dict.fromkeys(("true", "on", "yes", "y", "t"), "1"),
}
_WORDS = {"0": "off", "1": "on"}


@LAUNCH_RULES.rule("VLM005", "misspelt-variable", Severity.WARNING, engine=Engine.VLLM)
def check_misspelt_variable(subject: LaunchSubject) -> Iterator[Defect]:
    """A variable that vLLM does not read looks like one that it reads.

    *What it checks*: variables that begin with `VLLM_`, `INKLING_` or `LAMPORT_` against the names
    that this version reads.

    *Why it matters*: vLLM ignores the variable; of an unknown `VLLM_` name it says so in its log,
    of the others it says nothing.

    *How to fix*: write the variable as vLLM reads it, or remove it.
    """
    for variable in _unknown(subject, ("VLLM_", "INKLING_", "LAMPORT_")):
        near = difflib.get_close_matches(variable.name, _KNOWN, n=1, cutoff=0.85)
        if near:
            yield Defect(
                f"vLLM does not read `{variable.name}`, the nearest that it reads is `{near[0]}`",
                f"`{near[0]}={variable.value}`",
                variable.location,
            )


@LAUNCH_RULES.rule(
    "VLM006",
    "unknown-variable-refused",
    Severity.ERROR,
    engine=Engine.VLLM,
    stage=Stage.ENGINE_CONFIG,
)
def check_unknown_variable_refused(subject: LaunchSubject) -> Iterator[Defect]:
    """`--fail-on-environ-validation` is on and a `VLLM_` variable is not one that vLLM reads.

    *What it checks*: all variables that begin with `VLLM_`, where that option is on.

    *Why it matters*: vLLM refuses to start.

    *How to fix*: correct or unset the variable, or leave the option out.
    """
    if not subject.launch.is_on(_VALIDATION):
        return
    for variable in _unknown(subject, ("VLLM_",)):
        yield launch_defect(
            subject.launch,
            f"`{variable.name}` is not a variable of vLLM and `{_VALIDATION}` is on",
            variable.location,
            remove=[_VALIDATION],
        )


@LAUNCH_RULES.rule("VLM007", "variable-not-a-number", Severity.ERROR, engine=Engine.VLLM)
def check_variable_not_a_number(subject: LaunchSubject) -> Iterator[Defect]:
    """A variable that vLLM reads as a number is something else.

    *What it checks*: the values of all variables that vLLM reads as numbers, most of them switches
    that take `0` or `1`. (`VLLM_LORA_ENABLE_DUAL_STREAM` has a rule of its own, VLM004.)

    *Why it matters*: vLLM reads every variable when its engine starts, and stops at `true` or at an
    empty text; some it reads earlier.

    *How to fix*: write a number: `1` for on, `0` for off. Unset a variable instead of emptying it.
    """
    for variable in _seen(subject):
        name, value = variable.name, variable.value
        if name in _INTEGERS and name != DUAL_STREAM and parse_integer(value) is None:
            expected = "a whole number"
        elif name in _NUMBERS and parse_number(value) is None:
            expected = "a number"
        else:
            continue
        yield Defect(
            f"`{name}` is `{value}`, expected {expected}",
            f"`{name}=1` for on, `{name}=0` for off, where it is a switch",
            variable.location,
            stage=_stage(name),
        )


@LAUNCH_RULES.rule("VLM008", "variable-not-a-choice", Severity.ERROR, engine=Engine.VLLM)
def check_variable_not_a_choice(subject: LaunchSubject) -> Iterator[Defect]:
    """A variable that takes one of a few words has another.

    *What it checks*: the values of the variables for which vLLM has a fixed list.

    *Why it matters*: vLLM reads every variable when its engine starts, and stops at an unknown
    word; some it reads earlier.

    *How to fix*: take a word from the list, or unset the variable.
    """
    for variable in _seen(subject):
        choices = names.CHOICES.get(variable.name, "").split()
        is_caseless = variable.name in names.CASELESS.split()
        value = variable.value.lower() if is_caseless else variable.value
        if choices and value not in choices:
            yield Defect(
                f"`{variable.name}` is `{variable.value}`, expected one of "
                + format_names(choices, limit=8),
                f"`{variable.name}={choices[0]}`, or unset it",
                variable.location,
                stage=_stage(variable.name),
            )


@LAUNCH_RULES.rule("VLM009", "variable-value-misread", Severity.WARNING, engine=Engine.VLLM)
def check_variable_value_misread(subject: LaunchSubject) -> Iterator[Defect]:
    """A switch in the environment has a text that vLLM does not understand.

    *What it checks*: `LAMPORT_RS_SCONV`, of which `0` alone turns the fused path off;
    `INKLING_SPLIT_KV` and `INKLING_GFX950_GLUON`, of which `1` alone means on;
    `VLLM_USE_BREAKABLE_CUDAGRAPH` and `VLLM_ALLOW_RUNTIME_LORA_UPDATING`, which any other text
    turns off.

    *Why it matters*: vLLM says nothing and takes the text for the other meaning: `false` leaves the
    fused path on, `yes` leaves run-time loading off.

    *How to fix*: write `1` or `0`.
    """
    for variable in _seen(subject):
        understood = _EXACT.get(variable.name, ())
        value = variable.value.strip().lower()
        effect = "1" if variable.name == "LAMPORT_RS_SCONV" else "0"
        meant = _MEANT.get(value)
        if not understood or value in understood or meant == effect:
            continue
        message = (
            f"`{variable.name}` is `{variable.value}`, which counts as {_WORDS[effect]}; "
            "expected `0` or `1`"
        )
        if meant is None:
            yield Defect(message, "write `0` or `1`", variable.location)
        else:
            changes = {variable.name: meant}
            yield launch_defect(subject.launch, message, variable.location, variables=changes)


def _stage(name: str) -> Stage:
    """Return where vLLM first reads a variable."""
    if name in names.READ_BY_PARSER.split():
        return Stage.COMMAND_LINE
    return Stage.ENGINE_CONFIG if name in names.READ_BY_CONFIG.split() else Stage.STARTUP


def _seen(subject: LaunchSubject) -> Iterator[Variable]:
    """Yield the variables that the server sees and whose values are known."""
    for variable in subject.launch.variables.values():
        if variable.exported and not is_unknown(variable.value):
            yield variable


def _unknown(subject: LaunchSubject, prefixes: tuple[str, ...]) -> Iterator[Variable]:
    for variable in subject.launch.variables.values():
        if variable.exported and variable.name.startswith(prefixes) and variable.name not in _KNOWN:
            yield variable
