"""Rules over options of SGLang that need one another, exclude one another, or are for others."""

from collections.abc import Iterator

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.advice import launch_defect
from inkling_cli.checks.launch.launch import OptionUse, ProblemKind
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.sglang.argument_limits import (
    CLASHES,
    NEEDS,
    NEEDS_IF_POSITIVE,
    NEVER,
    NOT_FOR_INKLING,
)
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage

_ERROR, _SGLANG, _STAGE = Severity.ERROR, Engine.SGLANG, Stage.SERVER_ARGS


@LAUNCH_RULES.rule("SGL004", "option-needs-another", _ERROR, engine=_SGLANG, stage=_STAGE)
def check_option_needs_another(subject: LaunchSubject) -> Iterator[Defect]:
    """An option stands without the option that it depends on.

    *What it checks*: options that SGLang takes only beside another one, for example
    `--ssl-keyfile` beside `--ssl-certfile`, or DP attention's options without DP attention.

    *Why it matters*: SGLang refuses to start.

    *How to fix*: give the other option as well, or remove this one.
    """
    has_more = any(subject.launch.problems_of(ProblemKind.MISSING_CONFIG)) or any(
        subject.launch.problems_of(ProblemKind.UNKNOWN_SHELL_VALUE)
    )
    positive = {
        name: others
        for name, others in NEEDS_IF_POSITIVE.items()
        if (subject.launch.integer(name) or 0) > 0
    }
    for written, others in (NEEDS | positive).items():
        use = _use_of(subject, written)
        if use is None or has_more or any(_is_given(subject, other) for other in others):
            continue
        shown = _shown(use)
        expected = " or ".join(f"`{other}`" for other in others)
        yield Defect(
            f"`{shown}` stands alone, expected {expected} beside it",
            f"give {expected} as well, or leave `{use.name}` out",
            use.location,
        )


def _is_given(subject: LaunchSubject, name: str) -> bool:
    """Whether the launch has an option or a variable."""
    found = subject.launch.use(name) or subject.launch.variables.get(name)
    return found is not None


@LAUNCH_RULES.rule("SGL005", "option-not-for-inkling", _ERROR, engine=_SGLANG, stage=_STAGE)
def check_option_not_for_inkling(subject: LaunchSubject) -> Iterator[Defect]:
    """An option, or one of its values, is for other models or devices.

    *What it checks*: options that SGLang takes for some architectures only, on an Inkling, and
    values that no CUDA server can have.

    *Why it matters*: SGLang refuses to start.

    *How to fix*: remove the option.
    """
    reasons = dict(NEVER)
    if subject.is_inkling:
        reasons |= dict.fromkeys(NOT_FOR_INKLING, "does not work with an Inkling")
    for written, reason in reasons.items():
        if use := _use_of(subject, written):
            yield launch_defect(
                subject.launch,
                f"`{_shown(use)}` {reason}",
                use.location,
                remove=[use.name],
            )


@LAUNCH_RULES.rule("SGL010", "options-clash", _ERROR, engine=_SGLANG, stage=_STAGE)
def check_options_clash(subject: LaunchSubject) -> Iterator[Defect]:
    """Two options exclude each other.

    *What it checks*: pairs of options that SGLang does not take together, for example
    `--enable-priority-scheduling` and a `--schedule-policy` other than `fcfs` and `lof`.

    *Why it matters*: SGLang refuses to start.

    *How to fix*: leave one of the two out.
    """
    for first, second in CLASHES:
        use, other = _use_of(subject, first), _use_of(subject, second)
        if use is not None and other is not None:
            yield launch_defect(
                subject.launch,
                f"`{_shown(use)}` and `{_shown(other)}` exclude each other, expected one of them",
                use.location,
                remove=[use.name],
            )


@LAUNCH_RULES.rule("SGL011", "pd-multiplexing-incomplete", _ERROR, engine=_SGLANG, stage=_STAGE)
def check_pd_multiplexing_incomplete(subject: LaunchSubject) -> Iterator[Defect]:
    """PD multiplexing is on without what it needs.

    *What it checks*: `--enable-pdmux` needs `--chunked-prefill-size -1` and
    `--disable-overlap-schedule`.

    *Why it matters*: SGLang refuses to start.

    *How to fix*: add both, or leave `--enable-pdmux` out.
    """
    launch, options = subject.launch, dict[str, str]()
    if not launch.is_on("--enable-pdmux"):
        return
    chunk = launch.text("--chunked-prefill-size")
    if chunk is None or launch.integer("--chunked-prefill-size") not in (-1, None):
        options["--chunked-prefill-size"] = "-1"
    if not launch.is_on("--disable-overlap-schedule"):
        options["--disable-overlap-schedule"] = ""
    if options:
        needed = " and ".join(f"`{f'{name} {value}'.rstrip()}`" for name, value in options.items())
        are = "is" if len(options) == 1 else "are"
        yield launch_defect(
            launch,
            f"`--enable-pdmux` needs {needed}, which {are} not given",
            subject.at("--enable-pdmux"),
            options=options,
        )


def _use_of(subject: LaunchSubject, written: str) -> OptionUse | None:
    """Return the use of an option (and value), if the launch has it switched on."""
    name, _, value = written.partition("=")
    use = subject.launch.use(name)
    if use is None or not use.enabled or (value and use.values[-1:] != (value,)):
        return None
    return use


def _shown(use: OptionUse) -> str:
    return " ".join((use.name, *use.values[:1]))
