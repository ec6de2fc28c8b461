"""Rules over batches that must hold the drafted tokens of all sequences, which LoRA demands."""

from collections.abc import Iterator

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.advice import launch_defect
from inkling_cli.checks.launch.launch import Launch
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.launch.vllm.sizes import parse_size
from inkling_cli.checks.launch.vllm.speculation import (
    Speculation,
    mtp_layers,
    read_speculation,
)
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage

_CONFIG = Stage.ENGINE_CONFIG
_BATCH, _SEQUENCES = "--max-num-batched-tokens", "--max-num-seqs"
_MOST_TOKENS, _FEWEST_SEQUENCES = 16384, 256
"""The defaults of a server that leave most room: on GPUs of 160 GiB, and on small ones."""
_USUAL_TOKENS, _USUAL_SEQUENCES = 8192, 1024
"""The defaults of a server on GPUs of 70 to 160 GiB."""


@LAUNCH_RULES.rule(
    "VLM301", "batch-too-small-for-drafts", Severity.ERROR, engine=Engine.VLLM, stage=_CONFIG
)
def check_batch_too_small_for_drafts(subject: LaunchSubject) -> Iterator[Defect]:
    """A batch cannot hold the drafted tokens of all sequences, which vLLM demands beside LoRA.

    *What it checks*: with LoRA and speculative decoding, `--max-num-batched-tokens` against
    `--max-num-seqs` times (drafted tokens + 1). Where one of the two is not given, the default that
    leaves most room counts.

    *Why it matters*: vLLM refuses to start.

    *How to fix*: raise `--max-num-batched-tokens`, or lower `--max-num-seqs` or the number of
    drafted tokens.
    """
    found = _needed_tokens(subject, _FEWEST_SEQUENCES)
    tokens = _batch(subject.launch, _MOST_TOKENS)
    if found is None or tokens is None or tokens >= found[0]:
        return
    needed, why = found
    yield launch_defect(
        subject.launch,
        f"`{_BATCH}` is {tokens}, LoRA with speculative decoding needs at least {needed} ({why})",
        subject.at(_BATCH if subject.launch.use(_BATCH) else _SEQUENCES),
        options={_BATCH: str(needed)},
    )


@LAUNCH_RULES.rule(
    "VLM302", "default-batch-too-small-for-drafts", Severity.WARNING, engine=Engine.VLLM
)
def check_default_batch_too_small_for_drafts(subject: LaunchSubject) -> Iterator[Defect]:
    """The default batch of a usual GPU cannot hold the drafted tokens of all sequences.

    *What it checks*: the same as VLM301, where a limit is not given and the defaults of GPUs of 70
    to 160 GiB apply: 8192 tokens and 1024 sequences. Larger GPUs have 16384 tokens.

    *Why it matters*: on such a GPU vLLM refuses to start; on a larger one the same launch works.

    *How to fix*: give `--max-num-seqs` and `--max-num-batched-tokens`.
    """
    launch = subject.launch
    if launch.use(_BATCH) and launch.use(_SEQUENCES):
        return
    found = _needed_tokens(subject, _USUAL_SEQUENCES)
    tokens = _batch(launch, _USUAL_TOKENS)
    if found is None or tokens is None or tokens >= found[0]:
        return
    if any(check_batch_too_small_for_drafts(subject)):
        return
    needed, why = found
    yield launch_defect(
        launch,
        f"on GPUs of 70 to 160 GiB `{_BATCH}` is {tokens}, LoRA with speculative decoding needs at "
        f"least {needed} ({why})",
        subject.at(_BATCH),
        options={_BATCH: str(needed)},
    )


def _batch(launch: Launch, default: int) -> int | None:
    """Return the tokens of a batch; None where the launch says something unreadable."""
    if launch.use(_BATCH) is None:
        return default * _factor(launch)
    return parse_size(launch.text(_BATCH))


def _needed_tokens(subject: LaunchSubject, sequences: int) -> tuple[int, str] | None:
    """Return the tokens that a batch must hold, and how they come about."""
    drafts = read_speculation(subject.launch)
    tokens = _drafted(subject, drafts) if drafts else None
    if not subject.lora_enabled or not tokens or tokens < 1:
        return None
    given = subject.launch.integer(_SEQUENCES)
    if given is None:
        if subject.launch.use(_SEQUENCES):
            return None
        batch = _batch(subject.launch, _MOST_TOKENS)
        given = min(sequences * _factor(subject.launch), batch or sequences)
    if given < 1:
        return None
    return given * (tokens + 1), f"{given} sequences of {tokens} + 1"


def _drafted(subject: LaunchSubject, drafts: Speculation) -> int | None:
    """Return how many tokens are drafted; MTP drafts as many as there are layers by default."""
    if drafts.num_tokens is not None or drafts.method != "mtp":
        return drafts.num_tokens
    return mtp_layers(subject) if "model" in drafts.settings else None


def _factor(launch: Launch) -> int:
    return 2 if launch.text("--performance-mode") == "throughput" else 1
