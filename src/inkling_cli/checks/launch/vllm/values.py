"""Rules over option values that vLLM's config classes check, after the argument parser."""

import difflib
import re
from collections.abc import Iterator

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.launch import OptionUse
from inkling_cli.checks.launch.options import vllm_choices as data
from inkling_cli.checks.launch.options.table import is_json, parse_number, read_json_object
from inkling_cli.checks.launch.parse.arguments import is_unknown
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage
from inkling_runtime.errors import format_names

_INTERVAL = re.compile(r"([\[(])(\S+), (\S+)([\])])")
_NEGATIVE_FRACTION = re.compile(r"-\d*\.\d+")
_PLUGINS = {
    "--reasoning-parser": "--reasoning-parser-plugin",
    "--tool-call-parser": "--tool-parser-plugin",
}
_CHECKED_LATER = ("--speculative-config", "--watermark-config", "--diffusion-config")
"""JSON options whose keys the argument parser does not look at."""


@LAUNCH_RULES.rule(
    "VLM110", "value-out-of-range", Severity.ERROR, engine=Engine.VLLM, stage=Stage.ENGINE_CONFIG
)
def check_value_out_of_range(subject: LaunchSubject) -> Iterator[Defect]:
    """A number is outside the range that vLLM takes.

    *What it checks*: options whose values have an upper limit, or must be above a lower one: the
    share of memory above 0 and at most 1, and a few others. (A least value alone is LCH014's.)

    *Why it matters*: vLLM refuses to start.

    *How to fix*: give a number within the range.
    """
    for use in subject.launch.uses:
        interval = _INTERVAL.fullmatch(data.RANGES.get(use.name, ""))
        number = parse_number(use.values[-1]) if use.values else None
        if interval is None or number is None or _lies_in(number, interval):
            continue
        yield Defect(
            f"`{use.spelled}` is {use.values[-1]}, expected {_describe(interval)}",
            "give a number within the range",
            use.location,
        )


@LAUNCH_RULES.rule(
    "VLM125", "negative-fraction", Severity.ERROR, engine=Engine.VLLM, stage=Stage.COMMAND_LINE
)
def check_negative_fraction(subject: LaunchSubject) -> Iterator[Defect]:
    """A negative number with a point stands as a word of its own.

    *What it checks*: words such as `-0.1` after an option.

    *Why it matters*: vLLM takes a word with `-` in front and a point in it for a dotted JSON
    option, and its argument parser stops, whatever the option is.

    *How to fix*: join it to its option: `--option=-0.1`. Few options take negative numbers at all.
    """
    for use in subject.launch.uses:
        for word in use.words[1:]:
            if _NEGATIVE_FRACTION.fullmatch(word.text):
                yield Defect(
                    f"`{use.spelled}` has the word `{word.text}` after it, which vLLM takes for a "
                    "dotted option",
                    f"write `{use.spelled}={word.text}`",
                    use.location,
                )


@LAUNCH_RULES.rule(
    "VLM111", "value-unknown", Severity.ERROR, engine=Engine.VLLM, stage=Stage.ENGINE_CONFIG
)
def check_value_unknown(subject: LaunchSubject) -> Iterator[Defect]:
    """An option has a value that vLLM's config does not know, although its parser takes any text.

    *What it checks*: the quantisation, the K/V cache's dtype, attention backends, the optimisation
    level, and the reasoning and tool parsers, unless a plugin brings further ones.
    `--tool-call-parser` is looked at only with `--enable-auto-tool-choice`, as vLLM does.

    *Why it matters*: vLLM refuses to start.

    *How to fix*: take a value from the list. For an Inkling both parsers are called `inkling`.
    """
    for use in subject.launch.uses:
        choices = data.LATER_CHOICES.get(use.name, "").split()
        if not choices or not use.values or is_unknown(use.values[-1]):
            continue
        value = use.values[-1]
        plain = value.lower() if use.name in data.CASELESS.split() else value
        if plain in choices or value in ("", "None") or _is_passed_over(subject, use):
            continue
        near = difflib.get_close_matches(plain, choices, n=1)
        yield Defect(
            f"`{use.spelled}` is `{value}`, expected one of {format_names(choices, limit=6)}",
            f"did you mean `{near[0]}`?" if near else "take a value from the list",
            use.location,
        )


@LAUNCH_RULES.rule("VLM112", "json-key-unknown", Severity.ERROR, engine=Engine.VLLM)
def check_json_key_unknown(subject: LaunchSubject) -> Iterator[Defect]:
    """A JSON option has a key that vLLM does not know.

    *What it checks*: the keys of the options that take a config as JSON, also as dotted options
    (`--speculative-config.method`). `-` counts as `_` in `--speculative-config`.

    *Why it matters*: vLLM refuses to start.

    *How to fix*: write the key as vLLM has it.
    """
    for use in subject.launch.uses:
        option, _, dotted = use.name.partition(".")
        known = data.JSON_KEYS.get(option, "").split()
        if not known:
            continue
        keys = [dotted.partition(".")[0].rstrip("+")] if dotted else _keys(use)
        for key in keys:
            plain = key.replace("-", "_") if option == "--speculative-config" else key
            if plain in known or is_unknown(key):
                continue
            near = difflib.get_close_matches(key, known, n=1)
            yield Defect(
                f"`{option}` has the key `{key}`, expected one of {format_names(known, limit=6)}",
                f"did you mean `{near[0]}`?" if near else "remove the key",
                use.location,
                stage=Stage.ENGINE_CONFIG if option in _CHECKED_LATER else Stage.COMMAND_LINE,
            )


@LAUNCH_RULES.rule(
    "VLM124", "object-malformed", Severity.ERROR, engine=Engine.VLLM, stage=Stage.ENGINE_CONFIG
)
def check_object_malformed(subject: LaunchSubject) -> Iterator[Defect]:
    """An option that takes a JSON object has something else, or values of another kind in it.

    *What it checks*: that `--hf-overrides` and `--additional-config` are JSON objects, and that
    `--default-mm-loras` and `--model-class-overrides` are objects of texts. (What is no JSON at all
    is LCH013's.)

    *Why it matters*: vLLM refuses to start.

    *How to fix*: write an object in single quotes: `'{"image": "/path/to/adapter"}'`.
    """
    for use in subject.launch.uses:
        if not use.values or is_unknown(use.values[-1]) or use.values[-1] in ("", "None"):
            continue
        value = read_json_object(use.values[-1])
        if use.name in data.OBJECTS.split() and value is None:
            expected = "a JSON object"
        elif use.name in data.OBJECTS_OF_TEXTS.split() and is_json(use.values[-1]):
            expected = "an object of texts"
            if value is not None and all(isinstance(text, str) for text in value.values()):
                continue
        else:
            continue
        yield Defect(
            f"`{use.spelled}` is `{use.values[-1]}`, expected {expected}",
            f'write `{use.spelled} \'{{"KEY": "VALUE"}}\'`',
            use.location,
        )


def _keys(use: OptionUse) -> list[str]:
    value = read_json_object(use.values[-1]) if use.values else None
    return list(value or ())


def _is_passed_over(subject: LaunchSubject, use: OptionUse) -> bool:
    """Return whether vLLM does not look at a parser's name, or a plugin may know it."""
    plugin = _PLUGINS.get(use.name)
    if plugin is None:
        return False
    if use.name == "--reasoning-parser":
        return subject.launch.use(plugin) is not None or use.values[-1].lower() == "none"
    is_used = subject.launch.is_on("--enable-auto-tool-choice")
    return not is_used or subject.launch.use(plugin) is not None


def _lies_in(number: float, interval: re.Match[str]) -> bool:
    low, high = float(interval[2]), float(interval[3])
    above = number >= low if interval[1] == "[" else number > low
    below = number <= high if interval[4] == "]" else number < high
    return above and below


def _describe(interval: re.Match[str]) -> str:
    low = f"{'at least' if interval[1] == '[' else 'above'} {interval[2]}"
    if interval[3] == "inf":
        return low
    return f"{low} and {'at most' if interval[4] == ']' else 'below'} {interval[3]}"
