"""What is said beside a launch, by the command's own options."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.launch.launch import Variable


@dataclass(frozen=True, slots=True)
class Given:
    """What the user adds to the text of a launch.

    Attributes:
        environment: the variables that the server inherits.
        engine: overrides what the launch says.
        version: of the engine; decides which options are known.
        gpu_memory: bytes of each GPU.
    """

    environment: Mapping[str, Variable] = field(default_factory=dict)
    engine: Engine | None = None
    version: str | None = None
    gpu_memory: int | None = None

    def with_environment(self, environment: Mapping[str, Variable]) -> "Given":
        """Return the same with other variables."""
        return replace(self, environment=environment)


NOTHING = Given()
