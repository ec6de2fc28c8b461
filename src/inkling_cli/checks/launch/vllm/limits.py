"""Rules over the numbers that size vLLM's adapter slots."""

from collections.abc import Iterator

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.advice import format_adapters, launch_defect
from inkling_cli.checks.launch.launch import Launch
from inkling_cli.checks.launch.options.table import option_table
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.shell_word import shell_word
from inkling_cli.checks.stage import Stage

ALLOWED_RANKS = tuple(
    int(choice) for choice in option_table(Engine.VLLM).spec("--max-lora-rank").choices
)
DEFAULT_MAX_RANK = 16
DEFAULT_MAX_LORAS = 1
_CONFIG = Stage.ENGINE_CONFIG


def rank_limit(launch: Launch) -> int:
    """Return `--max-lora-rank`, its default where it is not given."""
    rank = launch.integer("--max-lora-rank")
    return DEFAULT_MAX_RANK if rank is None else rank


def smallest_allowed_rank(rank: int) -> int | None:
    """Return the smallest `--max-lora-rank` that holds a rank; None above the largest."""
    return min((allowed for allowed in ALLOWED_RANKS if allowed >= rank), default=None)


@LAUNCH_RULES.rule(
    "VLM101", "max-loras-below-one", Severity.ERROR, engine=Engine.VLLM, stage=_CONFIG
)
def check_max_loras_below_one(subject: LaunchSubject) -> Iterator[Defect]:
    """`--max-loras` is below 1.

    *What it checks*: `--max-loras`, the number of adapters that one batch can use, when LoRA is
    enabled.

    *Why it matters*: vLLM refuses to start.

    *How to fix*: give at least 1, or the number of adapters that are used at the same time.
    """
    slots = subject.launch.integer("--max-loras")
    if subject.lora_enabled and slots is not None and slots < 1:
        wanted = str(max(len(subject.launch.adapters), 1))
        yield launch_defect(
            subject.launch,
            f"`--max-loras` is {slots}, expected at least 1",
            subject.at("--max-loras"),
            options={"--max-loras": wanted},
        )


@LAUNCH_RULES.rule(
    "VLM102", "max-cpu-loras-below-max-loras", Severity.ERROR, engine=Engine.VLLM, stage=_CONFIG
)
def check_max_cpu_loras_below_max_loras(subject: LaunchSubject) -> Iterator[Defect]:
    """`--max-cpu-loras` is smaller than `--max-loras`.

    *What it checks*: the adapters kept in CPU memory against the adapters in one batch, with LoRA
    enabled. A `--max-cpu-loras` of 0 or below counts as not set, and then equals `--max-loras`.

    *Why it matters*: vLLM refuses to start: every adapter on the GPU is also kept in CPU memory.

    *How to fix*: raise `--max-cpu-loras` to at least `--max-loras`, or leave it out.
    """
    slots = subject.launch.integer("--max-loras")
    slots = DEFAULT_MAX_LORAS if slots is None else slots
    kept = subject.launch.integer("--max-cpu-loras")
    if subject.lora_enabled and kept is not None and 0 < kept < slots:
        yield launch_defect(
            subject.launch,
            f"`--max-cpu-loras` is {kept}, expected at least `--max-loras`, which is {slots}",
            subject.at("--max-cpu-loras"),
            options={"--max-cpu-loras": str(slots)},
        )


@LAUNCH_RULES.rule(
    "VLM103",
    "max-lora-rank-not-allowed",
    Severity.ERROR,
    engine=Engine.VLLM,
    stage=Stage.COMMAND_LINE,
)
def check_max_lora_rank_not_allowed(subject: LaunchSubject) -> Iterator[Defect]:
    """`--max-lora-rank` is not one of the ranks that vLLM takes.

    *What it checks*: `--max-lora-rank` against 1, 8, 16, 32, 64, 128, 256, 320 and 512.

    *Why it matters*: vLLM refuses to start, with or without `--enable-lora`.

    *How to fix*: take the next larger one; adapters of a smaller rank fit into it.
    """
    rank = subject.launch.integer("--max-lora-rank")
    if rank is None or rank in ALLOWED_RANKS:
        return
    allowed = ", ".join(map(str, ALLOWED_RANKS))
    wanted = str(smallest_allowed_rank(rank) or ALLOWED_RANKS[-1])
    yield launch_defect(
        subject.launch,
        f"`--max-lora-rank` is {rank}, expected one of {allowed}",
        subject.at("--max-lora-rank"),
        options={"--max-lora-rank": wanted},
    )


@LAUNCH_RULES.rule(
    "VLM104",
    "rank-above-max-lora-rank",
    Severity.ERROR,
    engine=Engine.VLLM,
    stage=Stage.ADAPTER_LOAD,
)
def check_rank_above_max_lora_rank(subject: LaunchSubject) -> Iterator[Defect]:
    """An adapter's rank is larger than `--max-lora-rank`.

    *What it checks*: the largest of `r` and `rank_pattern` in each adapter's config against
    `--max-lora-rank`, which is 16 where it is not given.

    *Why it matters*: vLLM refuses the adapter: at start-up, the server does not start.

    *How to fix*: raise `--max-lora-rank` to the next allowed rank. Every slot grows with it.
    """
    limit = rank_limit(subject.launch)
    is_given = subject.launch.integer("--max-lora-rank") is not None
    shown = f"{limit}" if is_given else f"{limit} where it is not given"
    above = [adapter for adapter in subject.adapters if adapter.max_rank > limit]
    if not above or not subject.lora_enabled:
        return
    rank = max(adapter.max_rank for adapter in above)
    message = (
        f"{format_adapters(above)} {'has' if len(above) == 1 else 'have'} rank {rank}, "
        f"expected at most `--max-lora-rank`, which is {shown}"
    )
    wanted, place = smallest_allowed_rank(rank), subject.at("--max-lora-rank")
    if wanted is None:
        largest = max(above, key=lambda adapter: adapter.max_rank)
        remedy = (
            f"vLLM takes ranks up to {ALLOWED_RANKS[-1]}: `inkling resize "
            f"{shell_word(largest.folder)} --rank {ALLOWED_RANKS[-1]} -o OUT`"
        )
        yield Defect(message, remedy, place)
    else:
        options = {"--max-lora-rank": str(wanted)}
        yield launch_defect(subject.launch, message, place, options=options)
