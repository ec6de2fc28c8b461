"""Rules over the numbers that size vLLM's batches and sequences, LoRA or not."""

from collections.abc import Iterator

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.advice import launch_defect
from inkling_cli.checks.launch.launch import parse_integer
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.launch.vllm.sizes import parse_size
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage

_CONFIG = Stage.ENGINE_CONFIG
_BATCH, _SEQUENCES = "--max-num-batched-tokens", "--max-num-seqs"
_LENGTH, _CHUNKED = "--max-model-len", "--enable-chunked-prefill"
_ACTIVE, _LONG = "--max-num-active-seqs", "--long-prefill-token-threshold"
_MOST_TOKENS = 16384
"""The largest default batch of a server; smaller GPUs have less."""
_MOST_SEQUENCES = 1024
"""The largest default number of sequences; smaller GPUs have fewer."""
_DEFAULT_LENGTH = 2048
"""The length of a sequence where the model's config tells none."""
LENGTH_KEYS = (
    *("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length"),
    *("max_sequence_length", "max_seq_length", "seq_len"),
)
"""Keys of config.json that limit a sequence; the smallest counts."""


@LAUNCH_RULES.rule(
    "VLM701", "batch-below-sequences", Severity.ERROR, engine=Engine.VLLM, stage=_CONFIG
)
def check_batch_below_sequences(subject: LaunchSubject) -> Iterator[Defect]:
    """A batch has room for fewer tokens than there are sequences.

    *What it checks*: `--max-num-batched-tokens` (at most 16384 where it is not given) against
    `--max-num-seqs`.

    *Why it matters*: vLLM refuses to start.

    *How to fix*: raise `--max-num-batched-tokens`, or lower `--max-num-seqs`.
    """
    launch = subject.launch
    sequences = launch.integer(_SEQUENCES)
    tokens = parse_size(launch.text(_BATCH)) if launch.use(_BATCH) else _MOST_TOKENS
    if sequences is None or tokens is None or min(sequences, tokens) < 1:
        return
    if tokens < sequences:
        yield launch_defect(
            launch,
            f"`{_BATCH}` is {tokens}, expected at least `{_SEQUENCES}`, which is {sequences}",
            subject.at(_BATCH if launch.use(_BATCH) else _SEQUENCES),
            options={_BATCH: str(sequences)},
        )


@LAUNCH_RULES.rule(
    "VLM702", "batch-below-length", Severity.ERROR, engine=Engine.VLLM, stage=_CONFIG
)
def check_batch_below_length(subject: LaunchSubject) -> Iterator[Defect]:
    """Prompts are not split over batches, and a batch is shorter than a sequence may be.

    *What it checks*: `--max-num-batched-tokens` against `--max-model-len`, with
    `--no-enable-chunked-prefill`.

    *Why it matters*: vLLM refuses to start.

    *How to fix*: leave chunked prefill on, or raise `--max-num-batched-tokens`.
    """
    launch = subject.launch
    use = launch.use(_CHUNKED)
    tokens, length = parse_size(launch.text(_BATCH)), _length(subject)
    if use is None or use.enabled or tokens is None or length is None or tokens < 1:
        return
    if tokens < length:
        yield launch_defect(
            launch,
            f"`{_BATCH}` is {tokens}, without chunked prefill at least {length} is needed, the "
            f"`{_LENGTH}`",
            subject.at(_BATCH),
            options={_BATCH: str(length)},
        )


@LAUNCH_RULES.rule(
    "VLM703", "active-above-sequences", Severity.ERROR, engine=Engine.VLLM, stage=_CONFIG
)
def check_active_above_sequences(subject: LaunchSubject) -> Iterator[Defect]:
    """More sequences are to be active than there may be.

    *What it checks*: `--max-num-active-seqs` against `--max-num-seqs` (at most 1024 where it is not
    given).

    *Why it matters*: vLLM refuses to start.

    *How to fix*: lower `--max-num-active-seqs`, or raise `--max-num-seqs`.
    """
    active, most = subject.launch.integer(_ACTIVE), subject.launch.integer(_SEQUENCES)
    if most is None and subject.launch.use(_SEQUENCES) is None:
        most = _MOST_SEQUENCES
    if active is not None and most is not None and active > most >= 1:
        yield launch_defect(
            subject.launch,
            f"`{_ACTIVE}` is {active}, expected at most `{_SEQUENCES}`, which is {most}",
            subject.at(_ACTIVE),
            options={_ACTIVE: str(most)},
        )


@LAUNCH_RULES.rule(
    "VLM704", "long-prefill-above-length", Severity.ERROR, engine=Engine.VLLM, stage=_CONFIG
)
def check_long_prefill_above_length(subject: LaunchSubject) -> Iterator[Defect]:
    """A prompt counts as long only above the longest sequence that there can be.

    *What it checks*: `--long-prefill-token-threshold` against `--max-model-len`, or the length in
    the model's config.

    *Why it matters*: vLLM refuses to start.

    *How to fix*: lower the threshold below the longest sequence.
    """
    threshold, length = subject.launch.integer(_LONG), _length(subject)
    if threshold is not None and length is not None and threshold > length:
        yield launch_defect(
            subject.launch,
            f"`{_LONG}` is {threshold}, expected at most the longest sequence, {length}",
            subject.at(_LONG),
            options={_LONG: str(length)},
        )


@LAUNCH_RULES.rule(
    "VLM705", "length-above-model", Severity.ERROR, engine=Engine.VLLM, stage=_CONFIG
)
def check_length_above_model(subject: LaunchSubject) -> Iterator[Defect]:
    """`--max-model-len` is longer than the model's config allows.

    *What it checks*: `--max-model-len` against the length in the model's config, unless
    `VLLM_ALLOW_LONG_MAX_MODEL_LEN` is on.

    *Why it matters*: vLLM refuses to start.

    *How to fix*: lower `--max-model-len`, or leave it out.
    """
    given, most = parse_size(subject.launch.text(_LENGTH)), _config_length(subject)
    allowed = parse_integer(subject.launch.variable("VLLM_ALLOW_LONG_MAX_MODEL_LEN") or "0")
    if given is not None and most is not None and given > most and not allowed:
        yield launch_defect(
            subject.launch,
            f"`{_LENGTH}` is {given}, the model's config allows {most}",
            subject.at(_LENGTH),
            options={_LENGTH: str(most)},
        )


@LAUNCH_RULES.rule(
    "VLM706", "kv-cache-dtype-not-model", Severity.ERROR, engine=Engine.VLLM, stage=_CONFIG
)
def check_kv_cache_dtype_not_model(subject: LaunchSubject) -> Iterator[Defect]:
    """`--kv-cache-dtype` is `float16` on an Inkling, which computes in bfloat16.

    *What it checks*: `--kv-cache-dtype float16` on an Inkling.

    *Why it matters*: vLLM refuses to start: an unquantised cache has the dtype of the model.

    *How to fix*: leave `--kv-cache-dtype` out, or take a quantised one such as `fp8`.
    """
    dtype = subject.launch.text("--dtype") or "auto"
    is_float16 = subject.launch.text("--kv-cache-dtype") == "float16"
    if subject.is_inkling and is_float16 and dtype in ("auto", "bfloat16"):
        yield launch_defect(
            subject.launch,
            "`--kv-cache-dtype` is `float16`, an Inkling needs `auto` or `bfloat16`",
            subject.at("--kv-cache-dtype"),
            remove=["--kv-cache-dtype"],
        )


@LAUNCH_RULES.rule("VLM707", "length-not-told", Severity.ERROR, engine=Engine.VLLM, stage=_CONFIG)
def check_length_not_told(subject: LaunchSubject) -> Iterator[Defect]:
    """`--max-model-len` is `auto`, but the model's config tells no length.

    *What it checks*: `--max-model-len auto` (or `-1`) against the keys of the model's config that
    limit a sequence.

    *Why it matters*: vLLM refuses to start.

    *How to fix*: give a length, or leave the option out: it is then 2048.
    """
    given = (subject.launch.text(_LENGTH) or "").strip().lower()
    if given in ("auto", "-1") and subject.model.spec and _config_length(subject) is None:
        yield launch_defect(
            subject.launch,
            f"`{_LENGTH}` is `{given}`, but `{subject.model.config_path}` tells no length",
            subject.at(_LENGTH),
            remove=[_LENGTH],
        )


def _length(subject: LaunchSubject) -> int | None:
    """Return the longest sequence that the server takes; None where it is not told."""
    if subject.launch.use(_LENGTH):
        given = parse_size(subject.launch.text(_LENGTH))
        return given if given is not None and given > 0 else None
    return (_config_length(subject) or _DEFAULT_LENGTH) if subject.model.spec else None


def _config_length(subject: LaunchSubject) -> int | None:
    spec = subject.model.spec
    values = [spec.config.get(key) for key in LENGTH_KEYS] if spec else []
    return min((n for n in values if isinstance(n, int) and n > 0), default=None)
