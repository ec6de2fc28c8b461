"""When an engine meets a defect: the stages of a server's life, in order."""

from enum import StrEnum


class Stage(StrEnum):
    """Where a launch ends. The names of an engine's own steps, from the first to the last.

    vLLM goes through command-line, engine-config, model, wrap, startup, adapter-load and first-use;
    SGLang through command-line, server-args, model, startup, dynamic-load and first-use. `served`
    is no failure: the server answers, but not as the launch meant.
    """

    COMMAND_LINE = "command-line"
    ENGINE_CONFIG = "engine-config"
    SERVER_ARGS = "server-args"
    MODEL = "model"
    WRAP = "wrap"
    STARTUP = "startup"
    ADAPTER_LOAD = "adapter-load"
    DYNAMIC_LOAD = "dynamic-load"
    FIRST_USE = "first-use"
    SERVED = "served"

    @property
    def order(self) -> int:
        """The place of the stage among all; an earlier one hides the later ones."""
        return list(Stage).index(self)

    @property
    def is_refusal(self) -> bool:
        """Whether the server, or the adapter, fails here."""
        return self is not Stage.SERVED
