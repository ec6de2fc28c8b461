"""What becomes of a launch, told from its findings: it starts, or it ends at a stage.

Not a promise that a launch works: what no rule knows is not seen. The first stage that refuses
hides all later ones, as it does on a server.
"""

from collections.abc import Iterable

from inkling_cli.checks.finding import Finding, Severity
from inkling_cli.checks.stage import Stage


def refusing_stage(findings: Iterable[Finding]) -> Stage | None:
    """Return the first stage at which the engine refuses the launch or an adapter; None if none."""
    stages = (
        finding.stage
        for finding in findings
        if finding.severity is Severity.ERROR and finding.stage and finding.stage.is_refusal
    )
    return min(stages, key=lambda stage: stage.order, default=None)
