"""Rules over values inside vLLM's JSON options, and over switches that need another option."""

from collections.abc import Iterator
from typing import Any

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.advice import launch_defect
from inkling_cli.checks.launch.launch import OptionUse
from inkling_cli.checks.launch.options import vllm_json as data
from inkling_cli.checks.launch.options.table import read_json_object
from inkling_cli.checks.launch.parse.arguments import is_unknown
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage
from inkling_runtime.errors import format_names

_PARSER, _CONFIG = Stage.COMMAND_LINE, Stage.ENGINE_CONFIG
_COMPILATION, _SPECULATION = "--compilation-config", "--speculative-config"
_BASE_MODES = ("all", "none")


@LAUNCH_RULES.rule(
    "VLM127", "json-value-unknown", Severity.ERROR, engine=Engine.VLLM, stage=_PARSER
)
def check_json_value_unknown(subject: LaunchSubject) -> Iterator[Defect]:
    """A key of a JSON option has a value that vLLM does not know.

    *What it checks*: keys that take one of a few words, such as `cudagraph_mode` and `kv_role`,
    also as dotted options; and in `--compilation-config` that `cudagraph_capture_sizes` is a list
    and that `custom_ops` holds `all`, `none` or operations with `+` or `-` in front.

    *Why it matters*: vLLM refuses to start.

    *How to fix*: take a value that vLLM knows.
    """
    for use in subject.launch.uses:
        option = use.name.partition(".")[0]
        known = data.VALUES.get(option, {})
        for key, value in _settings(use).items():
            expected = ""
            if key in known and not _is_known(key, value, known[key].split()):
                expected = f"one of {format_names(known[key].split(), limit=8)}"
            elif option == _COMPILATION and key in data.LISTS.split():
                expected = _expected_list(key, value)
            if expected:
                yield Defect(
                    f"`{key}` in `{option}` is `{value}`, expected {expected}",
                    "take a value that vLLM knows",
                    use.location,
                    stage=_CONFIG if option == _SPECULATION else _PARSER,
                )


@LAUNCH_RULES.rule(
    "VLM128", "switch-without-companion", Severity.ERROR, engine=Engine.VLLM, stage=_CONFIG
)
def check_switch_without_companion(subject: LaunchSubject) -> Iterator[Defect]:
    """A switch is on that works with another option only.

    *What it checks*: `--enable-fault-tolerance` without external load balancing
    (`--data-parallel-external-lb` or `--data-parallel-rank`), and
    `--enable-batch-sharded-sampling` with a tensor parallel size of 1.

    *Why it matters*: vLLM refuses to start.

    *How to fix*: leave the switch out, or add what it needs.
    """
    launch = subject.launch
    for switch, needed in data.COMPANIONS.items():
        options = needed.split()
        has_one = any(launch.is_on(name) or launch.use(name) for name in options)
        if options == ["--tensor-parallel-size"]:
            has_one = launch.integer(options[0]) not in (None, 1)
        if launch.is_on(switch) and not has_one:
            which = "one of " if len(options) > 1 else "a larger "
            message = f"`{switch}` is on, expected {which}{format_names(options)} beside it"
            yield launch_defect(launch, message, subject.at(switch), remove=[switch])


def _settings(use: OptionUse) -> dict[str, Any]:
    """Return the keys of a JSON option with their values; of a dotted one its own."""
    if not use.values or is_unknown(use.values[-1]):
        return {}
    _, _, dotted = use.name.partition(".")
    if not dotted:
        return read_json_object(use.values[-1]) or {}
    return {} if "." in dotted or dotted.endswith("+") else {dotted: use.values[-1]}


def _is_known(key: str, value: Any, words: list[str]) -> bool:
    if value is None or (isinstance(value, str) and is_unknown(value)):
        return True
    text = str(value)
    if key in data.FOLDED.split():
        text = text.lower().replace("-", "_")
    return text in words


def _expected_list(key: str, value: Any) -> str:
    """Return what a list should be that is something else; empty where it is right."""
    if not isinstance(value, list):
        return "" if isinstance(value, str) and value[:1] in "[0123456789" else "a list"
    if key == "custom_ops":
        ops = (str(op) for op in value)
        is_right = all(op in _BASE_MODES or op[:1] in ("+", "-") for op in ops)
        return "" if is_right else "`all`, `none`, or names with `+` or `-` in front"
    return ""
