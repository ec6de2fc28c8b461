"""Rules over what SGLang's own Inkling code demands of a launch: caches, attention, the config."""

from collections.abc import Iterator

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.advice import launch_defect
from inkling_cli.checks.launch.parse.arguments import is_unknown
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage
from inkling_runtime.errors import format_names

_ERROR, _SGLANG = Severity.ERROR, Engine.SGLANG
_ATTENTION = ("fa4", "triton")
_DEFAULT_TRACK_INTERVAL = 256
_DEFAULT_CONTEXT = 2048
_CONTEXT_KEYS = (
    "max_sequence_length",
    "seq_length",
    "max_seq_len",
    "model_max_length",
    "max_position_embeddings",
)
_LONGER_CONTEXT = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"


@LAUNCH_RULES.rule("SGL801", "radix-cache-off", _ERROR, engine=_SGLANG, stage=Stage.MODEL)
def check_radix_cache_off(subject: LaunchSubject) -> Iterator[Defect]:
    """The radix cache is switched off, which an Inkling needs.

    *What it checks*: `--disable-radix-cache`, unless the server only decodes (disaggregation).

    *Why it matters*: SGLang stops while it builds the model.

    *How to fix*: leave `--disable-radix-cache` out.
    """
    yield from _switched_off(subject, "--disable-radix-cache", "the radix cache")


@LAUNCH_RULES.rule("SGL802", "hybrid-swa-memory-off", _ERROR, engine=_SGLANG, stage=Stage.MODEL)
def check_hybrid_swa_memory_off(subject: LaunchSubject) -> Iterator[Defect]:
    """The memory for sliding-window layers is switched off, which an Inkling needs.

    *What it checks*: `--disable-hybrid-swa-memory`, unless the server only decodes.

    *Why it matters*: SGLang stops while it builds the model.

    *How to fix*: leave `--disable-hybrid-swa-memory` out.
    """
    yield from _switched_off(subject, "--disable-hybrid-swa-memory", "hybrid sliding-window memory")


@LAUNCH_RULES.rule("SGL803", "no-extra-state-buffer", _ERROR, engine=_SGLANG)
def check_no_extra_state_buffer(subject: LaunchSubject) -> Iterator[Defect]:
    """The state cache has no extra buffer, which an Inkling's convolutions need.

    *What it checks*: `--mamba-radix-cache-strategy no_buffer`. Left out, SGLang takes
    `extra_buffer` for an Inkling.

    *Why it matters*: SGLang refuses to start while it schedules ahead, and else stops while it
    builds the model.

    *How to fix*: leave the option out.
    """
    launch, name = subject.launch, "--mamba-radix-cache-strategy"
    if launch.text(name) != "no_buffer" or not subject.is_inkling or _only_decodes(subject):
        return
    is_late = launch.is_on("--disable-overlap-schedule") or launch.is_on("--disable-radix-cache")
    is_late = is_late and launch.text("--page-size") in (None, "1")
    yield launch_defect(
        launch,
        f"`{name}` is `no_buffer`, an Inkling needs `extra_buffer`",
        subject.at(name),
        remove=[name],
        stage=Stage.MODEL if is_late else Stage.SERVER_ARGS,
    )


@LAUNCH_RULES.rule("SGL804", "attention-backend-unusable", _ERROR, engine=_SGLANG)
def check_attention_backend_unusable(subject: LaunchSubject) -> Iterator[Defect]:
    """The attention backend cannot run an Inkling.

    *What it checks*: `--attention-backend`, `--prefill-attention-backend` and
    `--decode-attention-backend` against the two that have an Inkling's relative position bias.

    *Why it matters*: SGLang loads the model and stops in its first forward pass.

    *How to fix*: leave the option out: SGLang takes `fa4` where the GPU can, else `triton`.
    """
    for name in (
        "--attention-backend",
        "--prefill-attention-backend",
        "--decode-attention-backend",
    ):
        backend = subject.launch.text(name)
        if backend is None or not subject.is_inkling or is_unknown(backend):
            continue
        if backend not in _ATTENTION:
            yield launch_defect(
                subject.launch,
                f"`{name}` is `{backend}`, an Inkling runs on {format_names(_ATTENTION)} only",
                subject.at(name),
                remove=[name],
                stage=Stage.STARTUP,
            )


@LAUNCH_RULES.rule("SGL814", "model-of-transformers", _ERROR, engine=_SGLANG, stage=Stage.MODEL)
def check_model_of_transformers(subject: LaunchSubject) -> Iterator[Defect]:
    """SGLang is told to take the model's code from transformers.

    *What it checks*: `--model-impl transformers` on an Inkling.

    *Why it matters*: SGLang stops while it builds the model: transformers' Inkling does not let
    another engine do its attention.

    *How to fix*: leave `--model-impl` out.
    """
    if subject.is_inkling and subject.launch.text("--model-impl") == "transformers":
        yield launch_defect(
            subject.launch,
            "`--model-impl` is `transformers`, expected `sglang` or `auto` for an Inkling",
            subject.at("--model-impl"),
            remove=["--model-impl"],
        )


@LAUNCH_RULES.rule("SGL806", "media-not-served", Severity.INFO, engine=_SGLANG)
def check_media_not_served(subject: LaunchSubject) -> Iterator[Defect]:
    """Options for images and audio are given, but an Inkling is served as a text model.

    *What it checks*: options that begin with `--mm-` or `--limit-mm-`, on an Inkling without
    `--enable-multimodal`.

    *Why it matters*: SGLang leaves the vision and audio parts of an Inkling out unless it is told;
    the options have no effect and requests with images fail.

    *How to fix*: add `--enable-multimodal`.
    """
    media = [u for u in subject.launch.uses if u.name.startswith(("--mm-", "--limit-mm-"))]
    if media and subject.is_inkling and not subject.launch.is_on("--enable-multimodal"):
        yield launch_defect(
            subject.launch,
            f"`{media[0].name}` has no effect: an Inkling is served without images and audio "
            "unless `--enable-multimodal` is given",
            media[0].location,
            options={"--enable-multimodal": ""},
        )


@LAUNCH_RULES.rule(
    "SGL807", "context-longer-than-model", _ERROR, engine=_SGLANG, stage=Stage.SERVER_ARGS
)
def check_context_longer_than_model(subject: LaunchSubject) -> Iterator[Defect]:
    """`--context-length` is longer than the model's config allows.

    *What it checks*: the option against the first length that the text config names, 2048 where it
    names none.

    *Why it matters*: SGLang refuses to start, unless `SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN` is
    set.

    *How to fix*: leave the option out, or give at most the model's length.
    """
    name = "--context-length"
    length, spec = subject.launch.integer(name), subject.model.spec
    if length is None or spec is None:
        return
    allowed = next((spec.config[k] for k in _CONTEXT_KEYS if k in spec.config), _DEFAULT_CONTEXT)
    longer = (subject.launch.variable(_LONGER_CONTEXT) or "").lower() in ("1", "true", "yes", "y")
    if isinstance(allowed, int) and length > allowed and not longer:
        yield launch_defect(
            subject.launch,
            f"`{name}` is {length}, the model's config allows {allowed}",
            subject.at(name),
            remove=[name],
        )


@LAUNCH_RULES.rule(
    "SGL808", "page-size-off-the-track", _ERROR, engine=_SGLANG, stage=Stage.SERVER_ARGS
)
def check_page_size_off_the_track(subject: LaunchSubject) -> Iterator[Defect]:
    """`--page-size` does not divide the interval at which convolution states are kept.

    *What it checks*: `--page-size` against `--mamba-track-interval`, which is 256 where it is not
    given.

    *Why it matters*: SGLang refuses to start an Inkling.

    *How to fix*: give a power of two up to 256, or leave the option out.
    """
    launch = subject.launch
    size, interval = launch.integer("--page-size"), launch.integer("--mamba-track-interval")
    interval = _DEFAULT_TRACK_INTERVAL if interval is None else interval
    if size is None or not subject.is_inkling or launch.is_on("--disable-radix-cache"):
        return
    if size == 0 or interval % size:
        yield launch_defect(
            launch,
            f"`--page-size` is {size}, expected a divisor of `--mamba-track-interval`, {interval}",
            subject.at("--page-size"),
            remove=["--page-size"],
        )


@LAUNCH_RULES.rule(
    "SGL809", "draft-longer-than-track", _ERROR, engine=_SGLANG, stage=Stage.SERVER_ARGS
)
def check_draft_longer_than_track(subject: LaunchSubject) -> Iterator[Defect]:
    """A draft has more tokens than lie between two kept convolution states.

    *What it checks*: `--speculative-num-draft-tokens` against `--mamba-track-interval`, which is
    256 where it is not given.

    *Why it matters*: SGLang refuses to start an Inkling.

    *How to fix*: draft fewer tokens.
    """
    launch, name = subject.launch, "--speculative-num-draft-tokens"
    tokens, interval = launch.integer(name), launch.integer("--mamba-track-interval")
    interval = _DEFAULT_TRACK_INTERVAL if interval is None else interval
    is_tracked = subject.is_inkling and not launch.is_on("--disable-radix-cache")
    if tokens is not None and is_tracked and tokens > interval:
        yield launch_defect(
            launch,
            f"`{name}` is {tokens}, expected at most `--mamba-track-interval`, {interval}",
            subject.at(name),
            options={name: str(interval)},
        )


def _switched_off(subject: LaunchSubject, switch: str, what: str) -> Iterator[Defect]:
    if subject.launch.is_on(switch) and subject.is_inkling and not _only_decodes(subject):
        yield launch_defect(
            subject.launch,
            f"`{switch}` is given, an Inkling needs {what}",
            subject.at(switch),
            remove=[switch],
        )


def _only_decodes(subject: LaunchSubject) -> bool:
    return subject.launch.text("--disaggregation-mode") == "decode"
