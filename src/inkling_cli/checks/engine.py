"""The two serving engines whose launches are judged, and the versions the rules speak of."""

from enum import StrEnum


class Engine(StrEnum):
    """An engine. The value is what `--engine` takes."""

    VLLM = "vllm"
    SGLANG = "sglang"

    @property
    def display_name(self) -> str:
        """The engine's name as its authors write it."""
        return {Engine.VLLM: "vLLM", Engine.SGLANG: "SGLang"}[self]

    @property
    def known_version(self) -> str:
        """The version whose behaviour the rules were taken from and observed on."""
        return {Engine.VLLM: "0.33.0", Engine.SGLANG: "0.5.23"}[self]

    @property
    def adapters_option(self) -> str:
        """The option that names adapters to load at start-up."""
        return {Engine.VLLM: "--lora-modules", Engine.SGLANG: "--lora-paths"}[self]

    @property
    def model_option(self) -> str:
        """The option that names the model, where it is not the first argument."""
        return {Engine.VLLM: "--model", Engine.SGLANG: "--model-path"}[self]
