"""Rules over features of vLLM that LoRA on an Inkling does not go with, or that have no effect."""

from collections.abc import Iterator
from typing import Any

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.advice import launch_defect
from inkling_cli.checks.launch.launch import Launch, parse_integer
from inkling_cli.checks.launch.options.table import read_json_object
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.launch.vllm.wrapping import TARGETS
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage

_CONFIG = Stage.ENGINE_CONFIG
_OVERLAP_BACKENDS = ("deepep_low_latency", "deepep_high_throughput", "nixl_ep")
_TOWER, _MM = "--enable-tower-connector-lora", "--default-mm-loras"


@LAUNCH_RULES.rule("VLM118", "overlap-with-lora", Severity.ERROR, engine=Engine.VLLM, stage=_CONFIG)
def check_overlap_with_lora(subject: LaunchSubject) -> Iterator[Defect]:
    """Dual batch overlap is on, which does not go with LoRA.

    *What it checks*: `--enable-dbo`, or `--ubatch-size` above 1, with LoRA enabled.

    *Why it matters*: vLLM refuses to start: overlap needs one of the all-to-all backends
    `deepep_low_latency`, `deepep_high_throughput` and `nixl_ep`, which cannot carry adapters, and
    the V2 model runner refuses it beside LoRA at once.

    *How to fix*: leave `--enable-dbo` and `--ubatch-size` out.
    """
    launch = subject.launch
    batches = launch.integer("--ubatch-size") or 0
    option = "--enable-dbo" if launch.is_on("--enable-dbo") else "--ubatch-size"
    is_on = option == "--enable-dbo" or batches > 1
    is_v2 = bool(parse_integer(launch.variable("VLLM_USE_V2_MODEL_RUNNER")))
    is_supported = launch.text("--all2all-backend") in _OVERLAP_BACKENDS
    if subject.lora_enabled and is_on and (is_v2 or not is_supported):
        yield launch_defect(
            launch,
            f"`{option}` is on, dual batch overlap does not go with LoRA",
            subject.at(option),
            remove=[name for name in ("--enable-dbo", "--ubatch-size") if launch.use(name)],
        )


@LAUNCH_RULES.rule(
    "VLM119",
    "shared-encoder-cache-with-lora",
    Severity.ERROR,
    engine=Engine.VLLM,
    stage=Stage.STARTUP,
)
def check_shared_encoder_cache_with_lora(subject: LaunchSubject) -> Iterator[Defect]:
    """Encoders share their cache through Mooncake, which does not go with LoRA.

    *What it checks*: `ECMooncakeConnector` in `--ec-transfer-config` with `cross_encoder_cache`
    among its extra settings, with LoRA enabled.

    *Why it matters*: vLLM refuses to start.

    *How to fix*: leave `cross_encoder_cache` out.
    """
    config = _json_option(subject.launch, "--ec-transfer-config")
    extra = config.get("ec_connector_extra_config")
    is_shared = isinstance(extra, dict) and extra.get("cross_encoder_cache") is True
    if subject.lora_enabled and config.get("ec_connector") == "ECMooncakeConnector" and is_shared:
        yield Defect(
            "`cross_encoder_cache` is on in `--ec-transfer-config`, LoRA needs it off",
            "leave `cross_encoder_cache` out",
            subject.at("--ec-transfer-config"),
        )


@LAUNCH_RULES.rule(
    "VLM126",
    "transfer-without-role",
    Severity.ERROR,
    engine=Engine.VLLM,
    stage=Stage.COMMAND_LINE,
)
def check_transfer_without_role(subject: LaunchSubject) -> Iterator[Defect]:
    """A connector that moves caches between servers is set without the server's role.

    *What it checks*: `kv_role` beside `kv_connector` in `--kv-transfer-config`, `ec_role` beside
    `ec_connector` in `--ec-transfer-config`, and the connector beside a `kv_role`.

    *Why it matters*: vLLM refuses to start.

    *How to fix*: say the role, such as `"kv_role": "kv_both"` or `"ec_role": "ec_producer"`.
    """
    for kind, role in (("kv", "kv_both"), ("ec", "ec_producer")):
        option = f"--{kind}-transfer-config"
        config = _json_option(subject.launch, option)
        is_dotted = any(use.name.startswith(f"{option}.") for use in subject.launch.uses)
        has_role, has_connector = config.get(f"{kind}_role"), config.get(f"{kind}_connector")
        if kind == "kv" and has_role and not has_connector and not is_dotted:
            yield Defect(
                f"`{option}` has `{kind}_role` but no `{kind}_connector`, expected one",
                f'add `"{kind}_connector"`, or leave `{option}` out',
                subject.at(option),
                stage=_CONFIG,
            )
        if has_connector and not has_role and not is_dotted:
            yield Defect(
                f"`{option}` has `{kind}_connector` but no `{kind}_role`, expected one",
                f'add `"{kind}_role": "{role}"`',
                subject.at(option),
            )


@LAUNCH_RULES.rule("VLM120", "tower-adapters-passed-over", Severity.WARNING, engine=Engine.VLLM)
def check_tower_adapters_passed_over(subject: LaunchSubject) -> Iterator[Defect]:
    """`--enable-tower-connector-lora` has no effect on an Inkling.

    *What it checks*: the option, with LoRA enabled on an Inkling.

    *Why it matters*: vLLM treats an Inkling as a text model when it applies adapters; image and
    audio towers are not adapted, and nothing says so.

    *How to fix*: leave `--enable-tower-connector-lora` out.
    """
    if subject.lora_enabled and subject.is_inkling and subject.launch.is_on(_TOWER):
        yield launch_defect(
            subject.launch,
            f"`{_TOWER}` has no effect on an Inkling",
            subject.at(_TOWER),
            remove=[_TOWER],
        )


@LAUNCH_RULES.rule(
    "VLM121", "modality-adapters-on-text-model", Severity.ERROR, engine=Engine.VLLM, stage=_CONFIG
)
def check_modality_adapters_on_text_model(subject: LaunchSubject) -> Iterator[Defect]:
    """`--default-mm-loras` is given for a model without images and audio.

    *What it checks*: `--default-mm-loras` against the architecture in the model's config.

    *Why it matters*: vLLM refuses to start, with or without `--enable-lora`.

    *How to fix*: leave `--default-mm-loras` out.
    """
    spec = subject.model.spec
    is_text = spec and (
        not spec.is_multimodal or subject.model.architectures[:1] == ("InklingForCausalLM",)
    )
    if is_text and _json_option(subject.launch, _MM):
        yield launch_defect(
            subject.launch,
            f"`{_MM}` is given, `{subject.model.config_path}` describes a text-only model",
            subject.at(_MM),
            remove=[_MM],
        )


@LAUNCH_RULES.rule(
    "VLM122", "balancing-without-experts", Severity.ERROR, engine=Engine.VLLM, stage=_CONFIG
)
def check_balancing_without_experts(subject: LaunchSubject) -> Iterator[Defect]:
    """Experts are to be balanced over GPUs, but they are not spread over any.

    *What it checks*: `--enable-eplb` without `--enable-expert-parallel`, or on one GPU.

    *Why it matters*: vLLM refuses to start.

    *How to fix*: leave `--enable-eplb` out, or spread the experts.
    """
    launch = subject.launch
    sizes = ("--tensor-parallel-size", "--data-parallel-size", "--prefill-context-parallel-size")
    is_spread = any((launch.integer(name) or 1) > 1 for name in sizes)
    if not launch.is_on("--enable-eplb"):
        return
    if not launch.is_on("--enable-expert-parallel"):
        lacking = "`--enable-expert-parallel` is not"
    elif not is_spread:
        lacking = "there is one GPU"
    else:
        return
    yield launch_defect(
        launch,
        f"`--enable-eplb` is on but {lacking}",
        subject.at("--enable-eplb"),
        remove=["--enable-eplb"],
    )


@LAUNCH_RULES.rule("VLM123", "target-empty", Severity.ERROR, engine=Engine.VLLM, stage=_CONFIG)
def check_target_empty(subject: LaunchSubject) -> Iterator[Defect]:
    """A list of names has an empty value.

    *What it checks*: the values of `--served-model-name`, and with LoRA enabled of
    `--lora-target-modules`, for empty texts and the word `None`.

    *Why it matters*: vLLM reads both as no value at all and refuses to start.

    *How to fix*: remove the empty value.
    """
    lists = {"--served-model-name": "a model"}
    if subject.lora_enabled:
        lists[TARGETS] = "a module"
    for option, kind in lists.items():
        values = subject.launch.values(option)
        kept = [value for value in values if value not in ("", "None")]
        if len(kept) < len(values):
            yield launch_defect(
                subject.launch,
                f"`{option}` has an empty value, expected the name of {kind}",
                subject.at(option),
                options={option: " ".join(kept)} if kept else {},
                remove=[] if kept else [option],
            )


def _json_option(launch: Launch, option: str) -> dict[str, Any]:
    """Return the object that an option gives, dotted forms left out; empty if there is none."""
    text = launch.text(option)
    return (read_json_object(text) or {}) if text else {}
