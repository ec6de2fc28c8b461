"""Rules over the chat interface that SGLang sets up for an Inkling."""

from collections.abc import Iterator

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.advice import launch_defect
from inkling_cli.checks.launch.parse.arguments import is_unknown
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage

_PARSERS = ("--reasoning-parser", "--tool-call-parser")


@LAUNCH_RULES.rule(
    "SGL810", "parsers-differ", Severity.ERROR, engine=Engine.SGLANG, stage=Stage.STARTUP
)
def check_parsers_differ(subject: LaunchSubject) -> Iterator[Defect]:
    """One of the two output parsers is Inkling's and the other is another model's.

    *What it checks*: `--reasoning-parser` and `--tool-call-parser`, on an Inkling, where both are
    given and one is `inkling`.

    *Why it matters*: SGLang loads the model and then stops, when it sets up its chat interface.

    *How to fix*: give `inkling` to both, or leave one out.
    """
    parsers = {name: subject.launch.text(name) for name in _PARSERS}
    given = [parser for parser in parsers.values() if parser is not None]
    if not subject.is_inkling or any(map(is_unknown, given)) or "inkling" not in given:
        return
    for name, parser in parsers.items():
        if parser not in (None, "inkling"):
            yield launch_defect(
                subject.launch,
                f"`{name}` is `{parser}` while the other parser is `inkling`, expected `inkling`",
                subject.at(name),
                options={name: "inkling"},
            )
