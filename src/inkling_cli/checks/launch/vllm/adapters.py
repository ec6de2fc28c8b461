"""Rules over the adapters of a vLLM launch: their names beside the model's, their expert layout."""

from collections.abc import Iterator

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.advice import advise_conversion, format_adapters, launch_defect
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.launch.vllm.wrapping import SHARED_FLAG
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage


@LAUNCH_RULES.rule(
    "VLM201",
    "adapter-named-like-model",
    Severity.ERROR,
    engine=Engine.VLLM,
    stage=Stage.ADAPTER_LOAD,
)
def check_adapter_named_like_model(subject: LaunchSubject) -> Iterator[Defect]:
    """An adapter has the name under which the base model is served.

    *What it checks*: the names in `--lora-modules` against `--served-model-name`, or against the
    model itself where that is not given.

    *Why it matters*: vLLM refuses the adapter and does not start: a request could not say which it
    means.

    *How to fix*: give the adapter another name.
    """
    launch = subject.launch
    served = launch.values("--served-model-name") or tuple(filter(None, (launch.model,)))
    for ref in launch.adapters:
        if ref.at_startup and ref.name in served:
            yield launch_defect(
                subject.launch,
                f"adapter `{ref.name}` has the name of the served model, expected another",
                ref.location,
                options={"--lora-modules": f"{ref.name}-lora={ref.path}"},
            )


@LAUNCH_RULES.rule(
    "VLM202",
    "shared-outer-without-flag",
    Severity.ERROR,
    engine=Engine.VLLM,
    stage=Stage.ADAPTER_LOAD,
)
def check_shared_outer_without_flag(subject: LaunchSubject) -> Iterator[Defect]:
    """An adapter has shared-outer experts but `--enable-moe-shared-loras` is not on.

    *What it checks*: adapters whose routed experts are `experts.w1`, `experts.w2`, `experts.w3`
    (one tensor for all experts), with LoRA enabled. The names decide, not the shapes.

    *Why it matters*: vLLM refuses the adapter: without the flag it knows only names with an
    expert's number.

    *How to fix*: add `--enable-moe-shared-loras`. It holds for the whole server: adapters of both
    layouts cannot be served together, unless `inkling convert-adapter ADAPTER --to vllm --expand`
    stores the experts of these one by one as well.
    """
    stacked = [adapter for adapter in subject.adapters if adapter.stacked_experts()]
    if stacked and subject.lora_enabled and not subject.launch.is_on(SHARED_FLAG):
        message = (
            f"{format_adapters(stacked)} {'has' if len(stacked) == 1 else 'have'} shared-outer "
            f"experts (`{stacked[0].stacked_experts()[0]}`), expected `{SHARED_FLAG}`"
        )
        if any(adapter.numbered_experts() for adapter in subject.adapters):
            yield Defect(message, _serve_both(subject), subject.at(SHARED_FLAG))
        else:
            options = {SHARED_FLAG: ""}
            yield launch_defect(subject.launch, message, subject.at(SHARED_FLAG), options=options)


def _serve_both(subject: LaunchSubject) -> str:
    """Return how adapters of both layouts can be served."""
    stacked = next(adapter for adapter in subject.adapters if adapter.stacked_experts())
    expand = advise_conversion(stacked, Engine.VLLM, option="--expand")
    return (
        "serve the two layouts by two servers, or store all experts one by one for a server "
        f"without the flag: {expand}"
    )


@LAUNCH_RULES.rule(
    "VLM203",
    "per-expert-with-shared-flag",
    Severity.ERROR,
    engine=Engine.VLLM,
    stage=Stage.ADAPTER_LOAD,
)
def check_per_expert_with_shared_flag(subject: LaunchSubject) -> Iterator[Defect]:
    """An adapter stores its experts one by one but `--enable-moe-shared-loras` is on.

    *What it checks*: adapters with names like `experts.0.gate_proj`, with LoRA enabled and the flag
    on.

    *Why it matters*: vLLM refuses the adapter: with the flag it knows only names without an
    expert's number.

    *How to fix*: leave `--enable-moe-shared-loras` out, or convert the adapter to shared-outer
    experts if all experts have the same factor at the hidden side.
    """
    numbered = [adapter for adapter in subject.adapters if adapter.numbered_experts()]
    if numbered and subject.lora_enabled and subject.launch.is_on(SHARED_FLAG):
        message = (
            f"{format_adapters(numbered)} {'has' if len(numbered) == 1 else 'have'} experts one by "
            f"one (`{numbered[0].numbered_experts()[0]}`), expected no `{SHARED_FLAG}`"
        )
        if any(adapter.stacked_experts() for adapter in subject.adapters):
            yield Defect(message, _serve_both(subject), subject.at(SHARED_FLAG))
        else:
            yield launch_defect(
                subject.launch, message, subject.at(SHARED_FLAG), remove=[SHARED_FLAG]
            )
