"""Rules over speculative decoding beside LoRA: which algorithms, and which of their features."""

from collections.abc import Iterator

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.advice import launch_defect
from inkling_cli.checks.launch.parse.arguments import is_unknown
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.sglang.parallel import attention_groups, size_of
from inkling_cli.checks.launch.sglang.variables import is_true
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage
from inkling_runtime.errors import format_names

_ERROR, _SGLANG, _STAGE = Severity.ERROR, Engine.SGLANG, Stage.SERVER_ARGS
_OPTION = "--speculative-algorithm"
_DRAFT = "--speculative-draft-model-path"
_WITH_LORA = ("NGRAM", "EAGLE", "NEXTN", "EAGLE3", "DFLASH", "DSPARK")
_KNOWN = (*_WITH_LORA, "STANDALONE", "UNO", "FROZEN_KV_MTP", "NONE")
_VERIFY_MODES = ("static", "cap-accept", "compact")
_NEED_DRAFT = ("DFLASH", "DSPARK")
_EAGLES = ("EAGLE", "NEXTN", "EAGLE3")
_BREADTH, _DEFAULT_BREADTH = "--speculative-ngram-max-bfs-breadth", 10
_DP_HEAD = "--enable-dp-lm-head"
_PIPELINE = "--pp-size"
_TRTLLM = "experimental_sgl_trtllm"
_RUNNERS = ("--moe-runner-backend", "--speculative-moe-runner-backend")


def algorithm(subject: LaunchSubject) -> str | None:
    """Return the speculative algorithm in the engine's own spelling."""
    text = subject.launch.text(_OPTION)
    return None if text is None or is_unknown(text) else text.upper()


@LAUNCH_RULES.rule("SGL601", "speculation-without-lora", _ERROR, engine=_SGLANG, stage=_STAGE)
def check_speculation_without_lora(subject: LaunchSubject) -> Iterator[Defect]:
    """The speculative algorithm does not work with LoRA.

    *What it checks*: `--speculative-algorithm` against those that SGLang allows with LoRA, and
    against those that it knows at all.

    *Why it matters*: SGLang refuses to start.

    *How to fix*: take one of NGRAM, EAGLE, NEXTN, EAGLE3, DFLASH, DSPARK, or none.
    """
    name = algorithm(subject)
    if name is None or name in _WITH_LORA or not (subject.lora_enabled or name not in _KNOWN):
        return
    why = "does not work with LoRA" if name in _KNOWN else "is none that SGLang knows"
    yield launch_defect(
        subject.launch,
        f"`{_OPTION}` is `{name}`, which {why}; expected one of {format_names(_WITH_LORA, 6)}",
        subject.at(_OPTION),
        remove=[_OPTION],
    )


@LAUNCH_RULES.rule("SGL602", "adaptive-speculation", _ERROR, engine=_SGLANG, stage=_STAGE)
def check_adaptive_speculation(subject: LaunchSubject) -> Iterator[Defect]:
    """`--speculative-adaptive` is given beside LoRA.

    *What it checks*: the switch with any algorithm but NGRAM.

    *Why it matters*: SGLang refuses to start: it cannot rebuild LoRA's graphs while it runs.

    *How to fix*: leave `--speculative-adaptive` out.
    """
    if _drafts_with_lora(subject) and subject.launch.is_on("--speculative-adaptive"):
        yield launch_defect(
            subject.launch,
            f"`--speculative-adaptive` and LoRA do not go together beside `{algorithm(subject)}`",
            subject.at("--speculative-adaptive"),
            remove=["--speculative-adaptive"],
        )


@LAUNCH_RULES.rule("SGL603", "ragged-verification", _ERROR, engine=_SGLANG, stage=_STAGE)
def check_ragged_verification(subject: LaunchSubject) -> Iterator[Defect]:
    """The mode of verifying drafts is none that SGLang knows, or one that LoRA does not allow.

    *What it checks*: `SGLANG_RAGGED_VERIFY_MODE` beside `--speculative-algorithm`: `static`,
    `cap-accept` or `compact`; beside DSPARK and LoRA `static` alone, which is the default.

    *Why it matters*: SGLang refuses to start.

    *How to fix*: set `SGLANG_RAGGED_VERIFY_MODE=static`.
    """
    name = "SGLANG_RAGGED_VERIFY_MODE"
    mode = subject.launch.variable(name)
    if mode is None or is_unknown(mode) or algorithm(subject) in (None, "NONE"):
        return
    allowed: tuple[str, ...] = _VERIFY_MODES
    beside = f"`{_OPTION}`"
    if subject.lora_enabled and algorithm(subject) == "DSPARK":
        allowed, beside = _VERIFY_MODES[:1], "LoRA and DSPARK"
    if mode not in allowed:
        expected = format_names(allowed) if len(allowed) == 1 else f"one of {format_names(allowed)}"
        yield launch_defect(
            subject.launch,
            f"`{name}` is `{mode}`, expected {expected} beside {beside}",
            subject.at(name),
            variables={name: "static"},
        )


@LAUNCH_RULES.rule("SGL604", "plan-stream-with-lora", _ERROR, engine=_SGLANG, stage=_STAGE)
def check_plan_stream_with_lora(subject: LaunchSubject) -> Iterator[Defect]:
    """The plan stream is on beside LoRA and a draft model.

    *What it checks*: `SGLANG_ENABLE_OVERLAP_PLAN_STREAM` with any algorithm but NGRAM.

    *Why it matters*: SGLang refuses to start.

    *How to fix*: set `SGLANG_ENABLE_OVERLAP_PLAN_STREAM=0`.
    """
    name = "SGLANG_ENABLE_OVERLAP_PLAN_STREAM"
    if _drafts_with_lora(subject) and is_true(subject.launch.variable(name)):
        yield launch_defect(
            subject.launch,
            f"`{name}` is on beside LoRA and `{algorithm(subject)}`, expected off",
            subject.at(name),
            variables={name: "0"},
        )


@LAUNCH_RULES.rule("SGL605", "runner-not-for-speculation", _ERROR, engine=_SGLANG, stage=_STAGE)
def check_runner_not_for_speculation(subject: LaunchSubject) -> Iterator[Defect]:
    """A mixture-of-experts runner does not work with LoRA and a draft model.

    *What it checks*: `experimental_sgl_trtllm` as runner of the model or of the draft, and a
    `lora_*` runner for the draft, which has no adapters.

    *Why it matters*: SGLang refuses to start.

    *How to fix*: leave the runner out, or take another.
    """
    name = algorithm(subject)
    for option in _RUNNERS:
        runner = subject.launch.text(option)
        is_trtllm = runner == _TRTLLM and _drafts_with_lora(subject)
        is_lora = option == _RUNNERS[1] and (runner or "").startswith("lora") and name
        if is_trtllm or is_lora:
            yield launch_defect(
                subject.launch,
                f"`{option}` is `{runner}`, which does not work beside `{name}`",
                subject.at(option),
                remove=[option],
            )


@LAUNCH_RULES.rule("SGL606", "draft-model-missing", _ERROR, engine=_SGLANG, stage=_STAGE)
def check_draft_model_missing(subject: LaunchSubject) -> Iterator[Defect]:
    """The speculative algorithm needs a draft model, and none is given.

    *What it checks*: DFLASH and DSPARK without `--speculative-draft-model-path`.

    *Why it matters*: SGLang refuses to start.

    *How to fix*: name the draft model.
    """
    name = algorithm(subject)
    if name in _NEED_DRAFT and subject.launch.text(_DRAFT) is None:
        yield Defect(
            f"`{_OPTION}` is `{name}`, expected `{_DRAFT}` beside it",
            f"add `{_DRAFT} MODEL`",
            subject.at(_OPTION),
        )


@LAUNCH_RULES.rule("SGL607", "draft-numbers-incomplete", _ERROR, engine=_SGLANG, stage=_STAGE)
def check_draft_numbers_incomplete(subject: LaunchSubject) -> Iterator[Defect]:
    """Some numbers of the draft are given, and others that belong to them are not.

    *What it checks*: with EAGLE, NEXTN or EAGLE3: `--speculative-num-steps` and
    `--speculative-eagle-topk` need each other, and `--speculative-num-draft-tokens` needs both.

    *Why it matters*: SGLang refuses to start: it chooses all of them or none.

    *How to fix*: give all three, or leave all three out.
    """
    names = (
        "--speculative-num-steps",
        "--speculative-eagle-topk",
        "--speculative-num-draft-tokens",
    )
    given = [name for name in names if subject.launch.use(name)]
    missing = [name for name in names[:2] if name not in given]
    is_adaptive = subject.launch.is_on("--speculative-adaptive")
    if algorithm(subject) in _EAGLES and given and missing and not is_adaptive:
        yield launch_defect(
            subject.launch,
            f"`{given[0]}` is given without {format_names(missing)}, expected all or none",
            subject.at(given[0]),
            remove=given,
        )


@LAUNCH_RULES.rule("SGL608", "draft-with-dp-attention", _ERROR, engine=_SGLANG, stage=_STAGE)
def check_draft_with_dp_attention(subject: LaunchSubject) -> Iterator[Defect]:
    """The speculative algorithm does not work with DP attention as it is set up.

    *What it checks*: NGRAM beside DP attention; DFLASH and DSPARK beside DP attention without
    `--enable-dp-lm-head`.

    *Why it matters*: SGLang refuses to start.

    *How to fix*: leave NGRAM out; add `--enable-dp-lm-head` for the other two.
    """
    name, groups = algorithm(subject), attention_groups(subject)
    if groups is None or groups < 2:
        return
    if name == "NGRAM":
        yield launch_defect(
            subject.launch,
            f"`{_OPTION} {name}` and DP attention do not go together",
            subject.at(_OPTION),
            remove=[_OPTION],
        )
    elif name in _NEED_DRAFT and not subject.launch.is_on(_DP_HEAD):
        yield launch_defect(
            subject.launch,
            f"`{_OPTION} {name}` needs `{_DP_HEAD}` beside DP attention, which is not given",
            subject.at(_OPTION),
            options={_DP_HEAD: ""},
        )


@LAUNCH_RULES.rule("SGL609", "draft-tree-with-pages", _ERROR, engine=_SGLANG, stage=_STAGE)
def check_draft_tree_with_pages(subject: LaunchSubject) -> Iterator[Defect]:
    """Drafts are trees, beside pages of several tokens.

    *What it checks*: `--page-size` above 1 beside NGRAM, unless
    `--speculative-ngram-max-bfs-breadth`, which is 10 where it is not given, is 1; and on an
    Inkling beside EAGLE, NEXTN or EAGLE3 with `--speculative-eagle-topk` above 1, unless
    `--attention-backend` is `triton` (it is `fa4` on Hopper and Blackwell where it is not given).

    *Why it matters*: SGLang refuses to start.

    *How to fix*: leave `--page-size` out.
    """
    size, branches = subject.launch.integer("--page-size"), _num_branches(subject)
    if size is not None and size > 1 and branches > 1:
        yield launch_defect(
            subject.launch,
            f"`--page-size` is {size}, expected 1 beside `{_OPTION} {algorithm(subject)}` with "
            f"{branches} branches",
            subject.at("--page-size"),
            remove=["--page-size"],
        )


def _num_branches(subject: LaunchSubject) -> int:
    """Return the branches of a draft that cannot go over pages; 1 where nothing is in the way."""
    launch, name = subject.launch, algorithm(subject)
    if name == "NGRAM":
        breadth = launch.integer(_BREADTH)
        return _DEFAULT_BREADTH if breadth is None else breadth
    is_fa4 = launch.text("--attention-backend") in (None, "fa4") and subject.is_inkling
    return launch.integer("--speculative-eagle-topk") or 1 if name in _EAGLES and is_fa4 else 1


@LAUNCH_RULES.rule("SGL518", "pipeline-with-speculation", _ERROR, engine=_SGLANG, stage=_STAGE)
def check_pipeline_with_speculation(subject: LaunchSubject) -> Iterator[Defect]:
    """Pipeline parallelism meets speculative decoding.

    *What it checks*: `--pp-size` above 1 beside `--speculative-algorithm`, unless the server only
    prefills.

    *Why it matters*: SGLang refuses to start.

    *How to fix*: leave one of them out.
    """
    stages, algorithm = size_of(subject, _PIPELINE), subject.launch.text("--speculative-algorithm")
    only_prefills = subject.launch.text("--disaggregation-mode") == "prefill"
    if stages and stages > 1 and algorithm is not None and not only_prefills:
        yield Defect(
            f"`{_PIPELINE}` is {stages} beside `--speculative-algorithm {algorithm}`, "
            "expected one of them",
            f"leave `{_PIPELINE}` out",
            subject.at(_PIPELINE),
        )


def _drafts_with_lora(subject: LaunchSubject) -> bool:
    """Whether LoRA meets a draft model: every algorithm that it works with, but for NGRAM."""
    return subject.lora_enabled and algorithm(subject) in _WITH_LORA[1:]
