"""Rules over values that SGLang's parser takes and its later checks refuse."""

import json
from collections.abc import Iterator

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.advice import launch_defect
from inkling_cli.checks.launch.options.table import is_json, option_table, parse_number
from inkling_cli.checks.launch.parse.arguments import is_unknown
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.sglang.argument_limits import (
    BUCKET_RULES,
    BUCKETS,
    JSON_TEXTS,
    LOG_LEVELS,
    OBJECTS,
    RANGES,
)
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage
from inkling_runtime.errors import format_names

_ERROR, _SGLANG, _STAGE = Severity.ERROR, Engine.SGLANG, Stage.SERVER_ARGS


@LAUNCH_RULES.rule("SGL006", "number-out-of-range", _ERROR, engine=_SGLANG, stage=_STAGE)
def check_number_out_of_range(subject: LaunchSubject) -> Iterator[Defect]:
    """A number lies outside what SGLang takes.

    *What it checks*: the values of the options that have a least or a greatest value. (The options
    that size LoRA have rules of their own.)

    *Why it matters*: SGLang refuses to start.

    *How to fix*: give a number within the range.
    """
    table = option_table(Engine.SGLANG, subject.version)
    for name, allowed in RANGES.items():
        use, text = subject.launch.use(name), subject.launch.text(name)
        if use is None or text is None or not table.spec(name).takes(text):
            continue
        number = parse_number(text)
        if number is not None and not allowed.holds(number):
            yield Defect(
                f"`{name}` is {text}, expected {allowed}",
                f"give `{name}` a number that is {allowed}, or leave it out",
                use.location,
            )


@LAUNCH_RULES.rule("SGL007", "value-not-an-object", _ERROR, engine=_SGLANG, stage=_STAGE)
def check_value_not_an_object(subject: LaunchSubject) -> Iterator[Defect]:
    """An option that takes a JSON object has something else.

    *What it checks*: the options whose JSON holds settings by name, and one whose JSON the parser
    does not look at.

    *Why it matters*: SGLang refuses to start.

    *How to fix*: write an object, in single quotes: `'{"name": 1}'`.
    """
    table = option_table(Engine.SGLANG, subject.version)
    for name in (*OBJECTS, *JSON_TEXTS):
        use, text = subject.launch.use(name), subject.launch.text(name)
        if use is None or text is None or is_unknown(text) or not table.spec(name).takes(text):
            continue
        if not (is_json(text) if name in JSON_TEXTS else _is_object(text)):
            yield Defect(
                f"`{name}` is `{text}`, expected a JSON object",
                f"write an object: `{name} '{{…}}'`",
                use.location,
            )


@LAUNCH_RULES.rule("SGL008", "bucket-rule-unknown", _ERROR, engine=_SGLANG, stage=_STAGE)
def check_bucket_rule_unknown(subject: LaunchSubject) -> Iterator[Defect]:
    """A list of buckets does not begin with the rule that it follows.

    *What it checks*: the first word of `--prompt-tokens-buckets` and `--generation-tokens-buckets`.

    *Why it matters*: SGLang refuses to start.

    *How to fix*: begin with `default`, with `custom` and the numbers, or with `tse` and its three.
    """
    for name in BUCKETS:
        values = subject.launch.values(name)
        if values and not is_unknown(values[0]) and values[0] not in BUCKET_RULES:
            yield Defect(
                f"`{name}` begins with `{values[0]}`, expected one of {format_names(BUCKET_RULES)}",
                f"write `{name} default`",
                subject.at(name),
            )


@LAUNCH_RULES.rule("SGL009", "colon-in-model-name", _ERROR, engine=_SGLANG, stage=_STAGE)
def check_colon_in_model_name(subject: LaunchSubject) -> Iterator[Defect]:
    """The served model's name holds a colon.

    *What it checks*: `--served-model-name`.

    *Why it matters*: SGLang refuses to start: a request names an adapter as `model:adapter`.

    *How to fix*: write another character in place of the colon.
    """
    name = subject.launch.text("--served-model-name")
    if name is not None and ":" in name and "://" not in name and not is_unknown(name):
        yield launch_defect(
            subject.launch,
            f"`--served-model-name` is `{name}`, expected no colon: it separates model and adapter",
            subject.at("--served-model-name"),
            options={"--served-model-name": name.replace(":", "-")},
        )


@LAUNCH_RULES.rule("SGL012", "log-level-unknown", _ERROR, engine=_SGLANG, stage=Stage.COMMAND_LINE)
def check_log_level_unknown(subject: LaunchSubject) -> Iterator[Defect]:
    """`--log-level` is none that Python's logging has.

    *What it checks*: the word, in any case. (`--log-level-http` is not looked at by SGLang itself.)

    *Why it matters*: SGLang refuses to start, with an error that names no option.

    *How to fix*: write `debug`, `info`, `warning` or `error`.
    """
    level = subject.launch.text("--log-level")
    if level is not None and level.lower() not in LOG_LEVELS and not is_unknown(level):
        yield launch_defect(
            subject.launch,
            f"`--log-level` is `{level}`, expected one of {format_names(LOG_LEVELS, 8)}",
            subject.at("--log-level"),
            options={"--log-level": "info"},
        )


def _is_object(text: str) -> bool:
    return is_json(text) and isinstance(json.loads(text), dict)
