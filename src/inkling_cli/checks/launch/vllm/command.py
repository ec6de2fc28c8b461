"""Rules over how vLLM's serve command takes its words."""

from collections.abc import Iterator

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.launch import ProblemKind
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage

_NAME = "--served-model-name"


@LAUNCH_RULES.rule(
    "VLM130", "model-behind-name", Severity.ERROR, engine=Engine.VLLM, stage=Stage.COMMAND_LINE
)
def check_model_behind_name(subject: LaunchSubject) -> Iterator[Defect]:
    """The model stands behind options, and one of them is `--served-model-name`.

    *What it checks*: where the model stands in `vllm serve` with `--served-model-name`, which takes
    a list of names and would swallow a model behind it.

    *Why it matters*: vLLM refuses to start unless the model is the first word.

    *How to fix*: write the model right behind `serve`.
    """
    launch = subject.launch
    if launch.use("--config") is not None:
        return
    for problem in launch.problems_of(ProblemKind.MODEL_NOT_FIRST):
        yield Defect(
            f"`{problem.text}` stands behind options beside `{_NAME}`, expected the model first",
            f"`{' '.join(launch.program)} {problem.text} … {_NAME} NAME`",
            problem.location,
        )
