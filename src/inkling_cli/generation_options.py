"""Options of `inkling generate`: what is sampled, and how the model is held."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer

from inkling_cli.byte_size import parse_size
from inkling_runtime.errors import InklingError


class CompileMode(StrEnum):
    """Whether compiled CPU kernels are used."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


MaxTokensOption = Annotated[int, typer.Option("--max-tokens", help="Tokens to generate at most.")]
TemperatureOption = Annotated[
    float, typer.Option("--temperature", help="0 takes the most probable token.")
]
TopPOption = Annotated[float, typer.Option("--top-p", help="Sample from this much probability.")]
TopKOption = Annotated[int, typer.Option("--top-k", help="Sample from so many tokens; 0: all.")]
SeedOption = Annotated[
    int | None, typer.Option("--seed", help="Makes sampling repeatable, whatever else runs.")
]
StopOption = Annotated[
    list[str] | None,
    typer.Option("--stop", metavar="TEXT", help="A text that ends the reply. Repeatable."),
]
StopIdOption = Annotated[
    list[int] | None,
    typer.Option("--stop-id", metavar="ID", help="A token id that ends the reply. Repeatable."),
]
TopLogprobsOption = Annotated[
    int,
    typer.Option(
        "--top-logprobs", metavar="N", help="Tell the N most probable ids of each place (JSON)."
    ),
]
PromptLogprobsOption = Annotated[
    bool,
    typer.Option("--prompt-logprobs", help="Tell the prompt's log-probabilities, too (JSON)."),
]
DeviceOption = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]
DtypeOption = Annotated[str, typer.Option("--dtype", help="auto, float32 or bfloat16.")]
TensorParallelOption = Annotated[
    int,
    typer.Option("--tp", metavar="N", help="Processes (GPUs) that hold the model together."),
]
ExpertParallelOption = Annotated[
    bool, typer.Option("--ep", help="With --tp: each process holds whole routed experts.")
]
CompileOption = Annotated[
    CompileMode,
    typer.Option("--compile", help="Compiled CPU kernels; auto: if built before or worth it."),
]
MaxLorasOption = Annotated[
    int,
    typer.Option("--max-loras", metavar="N", help="Adapters on the device at a time."),
]
MaxBatchTokensOption = Annotated[
    int,
    typer.Option("--max-batch-tokens", metavar="N", help="Tokens computed in one step at most."),
]
MaxSequencesOption = Annotated[
    int,
    typer.Option("--max-sequences", metavar="N", help="Requests that run at a time at most."),
]
CacheMemoryOption = Annotated[
    str,
    typer.Option(
        "--cache-memory", metavar="SIZE", help="For keys and values: auto, or a size as 4G."
    ),
]


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How the model is held and run."""

    device: str
    dtype: str
    tensor_parallel: int
    expert_parallel: bool
    max_loras: int
    max_batch_tokens: int
    max_sequences: int
    cache_memory: str

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `LLM`.

        Raises:
            InklingError: a size is not one, or --ep is without --tp.
        """
        if self.expert_parallel and self.tensor_parallel == 1:
            raise InklingError(
                "`--ep` spreads experts over processes, and there is one", "`--tp N`"
            )
        cache_memory: int | str = self.cache_memory
        if self.cache_memory != "auto":
            cache_memory = parse_size(self.cache_memory, "--cache-memory", "4GiB", "auto")
        return {
            "device": self.device,
            "dtype": self.dtype,
            "tensor_parallel": self.tensor_parallel,
            "expert_parallel": self.expert_parallel,
            "max_loras": self.max_loras,
            "max_batch_tokens": self.max_batch_tokens,
            "max_sequences": self.max_sequences,
            "cache_memory": cache_memory,
        }
