"""Our own outcome of a launch of SGLang, through the parser and the rules that users get."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from inkling_cli.checks.finding import Finding, Location, Severity
from inkling_cli.checks.launch import LAUNCH_RULES
from inkling_cli.checks.launch.launch import ENVIRONMENT, Variable
from inkling_cli.checks.launch.outcome import refusing_stage
from inkling_cli.checks.launch.parse.adapter_refs import parse_given_adapters
from inkling_cli.checks.launch.parse.given import Given
from inkling_cli.checks.launch.read import launches_of, read_source
from inkling_cli.checks.launch.subject import resolve_launch


def judge(
    words: Sequence[str], env: Mapping[str, str], later: str | None, root: Path
) -> tuple[str | None, list[Finding]]:
    """Return the stage at which we say that the launch ends (None: it starts), and why.

    Args:
        words: the command, with `{root}` for the folder of the test world.
        env: the environment.
        later: the adapter that is loaded while the server runs.
        root: the folder of the test world.
    """
    words = [word.replace("{root}", str(root)) for word in words]
    place = Location(ENVIRONMENT)
    variables = {name: Variable(name, value, place) for name, value in env.items()}
    (launch,) = launches_of(read_source(words), Given(variables))
    given = [f"oracle={later}".replace("{root}", str(root))] if later else []
    adapters = parse_given_adapters(given, Location(key="--lora"))
    subject = resolve_launch(launch, None, None, adapters)
    findings = list(LAUNCH_RULES.check(subject, subject.engine, subject.described_version))
    stage = refusing_stage(findings)
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    return (stage.value if stage else None), errors
