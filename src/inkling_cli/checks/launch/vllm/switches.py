"""Rules over vLLM's LoRA switches and what does not go with them."""

from collections.abc import Iterator

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.advice import launch_defect
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage
from inkling_runtime.errors import format_names

_LORA_OPTIONS = (
    "--max-loras",
    "--max-lora-rank",
    "--max-cpu-loras",
    "--lora-dtype",
    "--lora-target-modules",
    "--fully-sharded-loras",
    "--specialize-active-lora",
    "--enable-moe-shared-loras",
    "--enable-mixed-moe-lora-format",
    "--enable-tower-connector-lora",
    "--default-mm-loras",
    "--max-lora-cls-labels",
)


@LAUNCH_RULES.rule(
    "VLM105", "lora-options-without-enable-lora", Severity.WARNING, engine=Engine.VLLM
)
def check_lora_options_without_enable_lora(subject: LaunchSubject) -> Iterator[Defect]:
    """LoRA options are given but LoRA is not enabled.

    *What it checks*: options that size or shape LoRA, without `--enable-lora`.

    *Why it matters*: vLLM ignores them without a word, and requests that name an adapter fail.

    *How to fix*: add `--enable-lora`, or remove the options.
    """
    unused = [name for name in _LORA_OPTIONS if (use := subject.launch.use(name)) and use.enabled]
    if unused and not subject.lora_enabled:
        yield launch_defect(
            subject.launch,
            f"{format_names(unused)} {'has' if len(unused) == 1 else 'have'} no effect: "
            "`--enable-lora` is not on",
            subject.at(unused[0]),
            options={"--enable-lora": ""},
        )


@LAUNCH_RULES.rule(
    "VLM106",
    "adapters-without-enable-lora",
    Severity.ERROR,
    engine=Engine.VLLM,
    stage=Stage.ENGINE_CONFIG,
)
def check_adapters_without_enable_lora(subject: LaunchSubject) -> Iterator[Defect]:
    """Adapters are named but LoRA is not enabled.

    *What it checks*: `--lora-modules`, or adapters given with `--lora`, without `--enable-lora`.

    *Why it matters*: vLLM makes its config without LoRA and loads the base model first; then it
    stops, because it cannot load the adapters, or refuses the requests that name one.

    *How to fix*: add `--enable-lora`.
    """
    named = subject.launch.adapters
    if not named or subject.lora_enabled:
        return
    names = format_names([ref.name for ref in named])
    if any(ref.at_startup for ref in named):
        message = f"`--lora-modules` names {names}, expected `--enable-lora` beside it"
        place = subject.at("--lora-modules")
    else:
        verb = "is" if len(named) == 1 else "are"
        message = f"{names} {verb} to be served, expected `--enable-lora`"
        place = subject.at("--enable-lora")
    yield launch_defect(subject.launch, message, place, options={"--enable-lora": ""})


@LAUNCH_RULES.rule(
    "VLM108",
    "fully-sharded-drops-attention",
    Severity.ERROR,
    engine=Engine.VLLM,
    stage=Stage.SERVED,
)
def check_fully_sharded_drops_attention(subject: LaunchSubject) -> Iterator[Defect]:
    """`--fully-sharded-loras` loses the attention's q, k, v and r on an Inkling.

    *What it checks*: `--fully-sharded-loras` with LoRA enabled on an Inkling, without
    `--lora-target-modules`. (Targets that name q, k, v or r keep vLLM from starting, VLM113.)

    *Why it matters*: vLLM has no fully sharded form of the fused projection of q, k, v and r. It
    serves the adapter without them and says so once in its log.

    *How to fix*: leave `--fully-sharded-loras` out.
    """
    launch = subject.launch
    if not (subject.lora_enabled and subject.is_inkling and launch.is_on("--fully-sharded-loras")):
        return
    if not launch.values("--lora-target-modules"):
        yield launch_defect(
            launch,
            "`--fully-sharded-loras` is on and drops q, k, v and r of every adapter on an Inkling, "
            "expected it off",
            subject.at("--fully-sharded-loras"),
            remove=["--fully-sharded-loras"],
        )


@LAUNCH_RULES.rule(
    "VLM109", "lora-dtype-not-bfloat16", Severity.ERROR, engine=Engine.VLLM, stage=Stage.FIRST_USE
)
def check_lora_dtype_not_bfloat16(subject: LaunchSubject) -> Iterator[Defect]:
    """`--lora-dtype` is `float16` on an Inkling, which computes in bfloat16.

    *What it checks*: `--lora-dtype float16` with LoRA enabled on an Inkling.

    *Why it matters*: vLLM accepts the option and fails once an adapter runs: the kernels need the
    adapter in the dtype of the activations, and an Inkling's are bfloat16.

    *How to fix*: leave `--lora-dtype` out; it then follows the model.
    """
    dtype = subject.launch.text("--lora-dtype")
    if subject.lora_enabled and subject.is_inkling and dtype == "float16":
        yield launch_defect(
            subject.launch,
            "`--lora-dtype` is `float16`, an Inkling needs `bfloat16`",
            subject.at("--lora-dtype"),
            options={"--lora-dtype": "bfloat16"},
        )
