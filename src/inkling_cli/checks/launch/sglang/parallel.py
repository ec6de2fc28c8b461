"""Rules over how an SGLang server is spread over GPUs, and LoRA with DP attention."""

from collections.abc import Iterator

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.advice import launch_defect
from inkling_cli.checks.launch.launch import AdapterRef
from inkling_cli.checks.launch.parse.arguments import is_unknown
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage
from inkling_runtime.errors import format_names

_ERROR, _SGLANG, _STAGE = Severity.ERROR, Engine.SGLANG, Stage.SERVER_ARGS
_TP, _EP, _PP = "--tp-size", "--ep-size", "--pp-size"
_GROUPS = "--attn-dp-size"


def size_of(subject: LaunchSubject, name: str) -> int | None:
    """Return one of the sizes; 1 where it is not given, None where it is not known."""
    if subject.launch.text(name) is None:
        return 1
    return subject.launch.integer(name)


def attention_groups(subject: LaunchSubject) -> int | None:
    """Return the number of DP attention groups; 1 is none. None where it is not known."""
    groups = size_of(subject, _GROUPS)
    if groups == 1 and subject.launch.is_on("--enable-dp-attention"):
        return size_of(subject, "--dp-size")
    return groups


@LAUNCH_RULES.rule("SGL511", "parallel-size-below-one", _ERROR, engine=_SGLANG, stage=_STAGE)
def check_parallel_size_below_one(subject: LaunchSubject) -> Iterator[Defect]:
    """A parallel size is below 1.

    *What it checks*: `--tp-size`, `--ep-size`, `--pp-size`, `--nnodes` and `--attn-cp-size`.

    *Why it matters*: SGLang refuses to start, with an error of arithmetic.

    *How to fix*: give at least 1, or leave the option out.
    """
    for name in (_TP, _EP, _PP, "--nnodes", "--attn-cp-size"):
        size = size_of(subject, name)
        if size is not None and (size < 1 if name != "--nnodes" else size == 0):
            yield launch_defect(
                subject.launch,
                f"`{name}` is {size}, expected at least 1",
                subject.at(name),
                remove=[name],
            )


@LAUNCH_RULES.rule("SGL512", "parallel-sizes-do-not-divide", _ERROR, engine=_SGLANG, stage=_STAGE)
def check_parallel_sizes_do_not_divide(subject: LaunchSubject) -> Iterator[Defect]:
    """A parallel size does not divide the tensor-parallel size, which is the number of GPUs.

    *What it checks*: DP attention's groups, `--attn-cp-size`, `--ep-size` and `--moe-dp-size`
    against `--tp-size`.

    *Why it matters*: SGLang refuses to start.

    *How to fix*: give a divisor of `--tp-size`.
    """
    world = size_of(subject, _TP)
    sizes = {
        _GROUPS: attention_groups(subject),
        "--attn-cp-size": size_of(subject, "--attn-cp-size"),
        _EP: size_of(subject, _EP),
        "--moe-dp-size": size_of(subject, "--moe-dp-size"),
    }
    for name, size in sizes.items():
        if world is None or size is None or min(world, size) < 1:
            continue
        if world % size:
            given = name if subject.launch.use(name) else "--dp-size"
            yield Defect(
                f"`{given}` is {size}, expected a divisor of `{_TP}`, {world}",
                f"give `{given}` a divisor of {world}",
                subject.at(given),
            )


@LAUNCH_RULES.rule("SGL513", "replicas-misplaced", _ERROR, engine=_SGLANG, stage=_STAGE)
def check_replicas_misplaced(subject: LaunchSubject) -> Iterator[Defect]:
    """Replicas are combined with what does not take replicas, or GPUs do not fill the nodes.

    *What it checks*: `--dp-size` above 1 beside `--attn-dp-size` above 1 or several nodes;
    `--tp-size` times `--pp-size` against `--nnodes`.

    *Why it matters*: SGLang refuses to start.

    *How to fix*: use DP attention in place of replicas, and sizes that fill the nodes.
    """
    replicas, groups = size_of(subject, "--dp-size"), size_of(subject, _GROUPS)
    nodes, world, stages = (size_of(subject, name) for name in ("--nnodes", _TP, _PP))
    is_old_spelling = subject.launch.is_on("--enable-dp-attention") and groups == 1
    if replicas and replicas > 1 and not is_old_spelling:
        for name, size in ((_GROUPS, groups), ("--nnodes", nodes)):
            if size is not None and size > 1:
                message = f"`--dp-size` is {replicas} beside `{name}` {size}, expected one of them"
                yield Defect(message, "leave `--dp-size` out", subject.at("--dp-size"))
    if nodes and world and stages and nodes > 0 and (world * stages) % nodes:
        yield Defect(
            f"`{_TP}` times `{_PP}` is {world * stages}, expected a multiple of `--nnodes` {nodes}",
            f"give `{_TP}` a multiple of {nodes}",
            subject.at("--nnodes"),
        )


@LAUNCH_RULES.rule("SGL521", "size-not-of-the-whole", _ERROR, engine=_SGLANG, stage=_STAGE)
def check_size_not_of_the_whole(subject: LaunchSubject) -> Iterator[Defect]:
    """A parallel size is neither 1 nor that of the whole group.

    *What it checks*: `--moe-dense-tp-size` and `--dwdp-size` are 1 or `--tp-size`;
    `--moe-dp-size` is 1 or `--attn-cp-size`.

    *Why it matters*: SGLang refuses to start.

    *How to fix*: leave the option out.
    """
    wholes = {"--moe-dense-tp-size": _TP, "--dwdp-size": _TP, "--moe-dp-size": "--attn-cp-size"}
    for name, whole_name in wholes.items():
        size, whole = subject.launch.integer(name), size_of(subject, whole_name)
        if size is None or whole is None or size in (1, whole):
            continue
        if name != "--dwdp-size" or size > 1:
            yield launch_defect(
                subject.launch,
                f"`{name}` is {size}, expected 1 or `{whole_name}`, {whole}",
                subject.at(name),
                remove=[name],
            )


@LAUNCH_RULES.rule("SGL514", "lora-with-partial-dp-attention", _ERROR, engine=_SGLANG)
def check_lora_with_partial_dp_attention(subject: LaunchSubject) -> Iterator[Defect]:
    """LoRA meets DP attention whose groups are wider than one GPU.

    *What it checks*: DP attention's groups against `--tp-size`.

    *Why it matters*: SGLang loads the model and then stops: LoRA needs one group for each GPU.

    *How to fix*: give `--attn-dp-size` the number of `--tp-size`, or leave DP attention out.
    """
    groups, world = _dp_attention(subject), size_of(subject, _TP)
    if groups and world and groups != world and world % groups == 0:
        name = _GROUPS if subject.launch.use(_GROUPS) else "--dp-size"
        yield launch_defect(
            subject.launch,
            f"DP attention has {groups} groups, expected `{_TP}`, {world}, beside LoRA",
            subject.at(name),
            options={name: str(world)},
            stage=Stage.STARTUP,
        )


@LAUNCH_RULES.rule("SGL515", "dp-attention-backend", _ERROR, engine=_SGLANG, stage=Stage.STARTUP)
def check_dp_attention_backend(subject: LaunchSubject) -> Iterator[Defect]:
    """The LoRA backend does not work with DP attention.

    *What it checks*: `--lora-backend`, which is `csgmv` where it is not given, beside DP attention.

    *Why it matters*: SGLang loads the model and then stops: `triton` alone can do it.

    *How to fix*: add `--lora-backend triton`.
    """
    backend = subject.launch.text("--lora-backend") or "csgmv"
    if is_unknown(backend) or backend in ("triton", "triton_v2"):
        return
    if _dp_attention(subject):
        yield launch_defect(
            subject.launch,
            f"`--lora-backend` is `{backend}` beside DP attention, expected `triton`",
            subject.at("--lora-backend"),
            options={"--lora-backend": "triton"},
        )


@LAUNCH_RULES.rule("SGL516", "dp-attention-unpinned", _ERROR, engine=_SGLANG)
def check_dp_attention_unpinned(subject: LaunchSubject) -> Iterator[Defect]:
    """An adapter is not pinned, beside DP attention.

    *What it checks*: `"pinned": true` of each adapter of `--lora-paths`.

    *Why it matters*: SGLang refuses the adapter, and does not start.

    *How to fix*: give each adapter as JSON with `"pinned": true`.
    """
    loose = [ref for ref in subject.launch.adapters if ref.at_startup and not ref.pinned]
    if _dp_attention(subject) and loose:
        yield Defect(
            f"{_named(loose)} not pinned, expected all adapters pinned beside DP attention",
            f'write `\'{{"lora_name": "{loose[0].name}", "lora_path": "{loose[0].path}", '
            '"pinned": true}\'`',
            loose[0].location,
            stage=Stage.STARTUP,
        )


@LAUNCH_RULES.rule("SGL517", "dp-attention-overlap", _ERROR, engine=_SGLANG, stage=Stage.STARTUP)
def check_dp_attention_overlap(subject: LaunchSubject) -> Iterator[Defect]:
    """Adapters are to be loaded in the background, beside DP attention.

    *What it checks*: `--enable-lora-overlap-loading` beside DP attention.

    *Why it matters*: SGLang loads the model and then stops.

    *How to fix*: leave `--enable-lora-overlap-loading` out.
    """
    name = "--enable-lora-overlap-loading"
    if _dp_attention(subject) and subject.launch.is_on(name):
        yield launch_defect(
            subject.launch,
            f"`{name}` and DP attention do not go together",
            subject.at(name),
            remove=[name],
        )


def _dp_attention(subject: LaunchSubject) -> int | None:
    """Return the groups of DP attention that LoRA meets; None if it meets none."""
    groups = attention_groups(subject)
    return groups if subject.lora_enabled and groups is not None and groups > 1 else None


def _named(refs: list[AdapterRef]) -> str:
    names = format_names([ref.name for ref in refs])
    return f"adapter {names} is" if len(refs) == 1 else f"adapters {names} are"
