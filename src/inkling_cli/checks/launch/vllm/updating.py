"""Rules over adapters that are loaded while vLLM runs: by its endpoint or by a resolver."""

from collections.abc import Iterator

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.advice import launch_defect
from inkling_cli.checks.launch.launch import Launch
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.launch.vllm.parallel import parallel_size
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage
from inkling_runtime.errors import format_names

_UPDATING = "VLLM_ALLOW_RUNTIME_LORA_UPDATING"
_FOLDER = "VLLM_LORA_RESOLVER_CACHE_DIR"
_REPOSITORIES = "VLLM_LORA_RESOLVER_HF_REPO_LIST"
_PLUGINS = "VLLM_PLUGINS"
_HUB_PLUGIN = "lora_hf_hub_resolver"
_SERVERS = "--api-server-count"


@LAUNCH_RULES.rule("VLM601", "no-way-to-load-adapters", Severity.INFO, engine=Engine.VLLM)
def check_no_way_to_load_adapters(subject: LaunchSubject) -> Iterator[Defect]:
    """LoRA is enabled, but the server has no adapter and no way to load one.

    *What it checks*: with `--enable-lora`, that the launch names an adapter (`--lora-modules`,
    `--default-mm-loras`) or allows loading while it runs.

    *Why it matters*: the memory of the adapter slots is taken and every step pays for them, but no
    request can name an adapter.

    *How to fix*: name adapters with `--lora-modules NAME=PATH`, or set
    `VLLM_ALLOW_RUNTIME_LORA_UPDATING=1`.
    """
    launch = subject.launch
    has_adapters = launch.use("--lora-modules") or launch.use("--default-mm-loras")
    if subject.lora_enabled and not has_adapters and not _may_update(launch):
        yield Defect(
            f"LoRA is enabled, but `--lora-modules` is not given and `{_UPDATING}` is not on",
            f"name adapters with `--lora-modules NAME=PATH`, or set `{_UPDATING}=1`",
            subject.at("--enable-lora"),
        )


@LAUNCH_RULES.rule(
    "VLM602",
    "updating-with-several-servers",
    Severity.ERROR,
    engine=Engine.VLLM,
    stage=Stage.ENGINE_CONFIG,
)
def check_updating_with_several_servers(subject: LaunchSubject) -> Iterator[Defect]:
    """Adapters may be loaded at run time, but there are several API servers.

    *What it checks*: `VLLM_ALLOW_RUNTIME_LORA_UPDATING` with `--api-server-count` above 1. Not
    given, there are as many API servers as data parallel ranks, unless an external load balancer
    is used.

    *Why it matters*: vLLM refuses to start: an adapter would be known to one server alone.

    *How to fix*: `--api-server-count 1`.
    """
    count = _api_servers(subject.launch)
    if _may_update(subject.launch) and count > 1:
        yield launch_defect(
            subject.launch,
            f"`{_UPDATING}` is on and there are {count} API servers, expected 1",
            subject.at(_SERVERS),
            options={_SERVERS: "1"},
        )


@LAUNCH_RULES.rule("VLM603", "resolver-without-updating", Severity.WARNING, engine=Engine.VLLM)
def check_resolver_without_updating(subject: LaunchSubject) -> Iterator[Defect]:
    """A resolver of adapters is set up but never asked.

    *What it checks*: `VLLM_LORA_RESOLVER_CACHE_DIR` or `VLLM_LORA_RESOLVER_HF_REPO_LIST` without
    `VLLM_ALLOW_RUNTIME_LORA_UPDATING`.

    *Why it matters*: vLLM asks resolvers only where loading at run time is allowed; a request for
    an adapter that the launch does not name is answered with 404.

    *How to fix*: set `VLLM_ALLOW_RUNTIME_LORA_UPDATING=1`.
    """
    given = next((n for n in (_FOLDER, _REPOSITORIES) if subject.launch.variable(n)), None)
    if subject.lora_enabled and given and not _may_update(subject.launch):
        yield launch_defect(
            subject.launch,
            f"`{given}` has no effect: `{_UPDATING}` is not on",
            subject.at(given),
            variables={_UPDATING: "1"},
        )


@LAUNCH_RULES.rule("VLM604", "hub-resolver-not-enabled", Severity.WARNING, engine=Engine.VLLM)
def check_hub_resolver_not_enabled(subject: LaunchSubject) -> Iterator[Defect]:
    """Repositories are listed for the hub resolver, which is not enabled.

    *What it checks*: `VLLM_LORA_RESOLVER_HF_REPO_LIST` without `lora_hf_hub_resolver` in
    `VLLM_PLUGINS`.

    *Why it matters*: vLLM does not use the resolver; it says so once in its log.

    *How to fix*: set `VLLM_PLUGINS=lora_hf_hub_resolver` (and the other plugins that are needed:
    the list is then complete).
    """
    plugins = subject.launch.variable(_PLUGINS) or ""
    has_list = subject.launch.variable(_REPOSITORIES)
    if subject.lora_enabled and has_list and _HUB_PLUGIN not in plugins:
        yield Defect(
            f"`{_REPOSITORIES}` has no effect: `{_HUB_PLUGIN}` is not in `{_PLUGINS}`",
            f"name it in `{_PLUGINS}`, beside all other plugins that are needed",
            subject.at(_REPOSITORIES),
        )


@LAUNCH_RULES.rule(
    "VLM605",
    "resolver-passes-over-adapter",
    Severity.ERROR,
    engine=Engine.VLLM,
    stage=Stage.ADAPTER_LOAD,
)
def check_resolver_passes_over_adapter(subject: LaunchSubject) -> Iterator[Defect]:
    """A resolver would not take an adapter, because its config names another base model.

    *What it checks*: adapters that are to be loaded later (`--lora`), where a resolver is set up
    and adapters cannot be loaded otherwise by name: `peft_type` is `LORA`, and
    `base_model_name_or_path` is the model exactly as the launch names it.

    *Why it matters*: the resolver passes over the adapter without a message, and the request is
    answered with 404.

    *How to fix*: write the model's name of the launch into adapter_config.json.
    """
    launch = subject.launch
    has_resolver = launch.variable(_FOLDER) or launch.variable(_REPOSITORIES)
    if not (subject.lora_enabled and has_resolver and launch.model):
        return
    for facts in subject.adapters:
        if facts.ref.at_startup:
            continue
        for key, wanted in (("peft_type", "LORA"), ("base_model_name_or_path", launch.model)):
            value = facts.config.values.get(key)
            if value != wanted:
                yield Defect(
                    f"adapter `{facts.name}` has `{key}` {value!r}, a resolver needs {wanted!r}",
                    f'write `"{key}": "{wanted}"` into its adapter_config.json',
                    facts.at(key),
                )
                break


@LAUNCH_RULES.rule("VLM210", "adapter-pickled", Severity.INFO, engine=Engine.VLLM)
def check_adapter_pickled(subject: LaunchSubject) -> Iterator[Defect]:
    """An adapter is stored with pickle alone, which vLLM loads and this tool does not read.

    *What it checks*: adapters whose folder holds adapter_model.bin or adapter_model.pt but no
    adapter_model.safetensors.

    *Why it matters*: names, shapes and layout of the adapter were not checked.

    *How to fix*: save it with safetensors.
    """
    for unread in subject.unread:
        if unread.pickled is not None:
            yield Defect(
                f"adapter `{unread.ref.name}` holds `{unread.pickled}` alone; it was not checked",
                "save it with safetensors",
                unread.ref.location,
            )


@LAUNCH_RULES.rule("VLM211", "more-adapters-than-slots", Severity.INFO, engine=Engine.VLLM)
def check_more_adapters_than_slots(subject: LaunchSubject) -> Iterator[Defect]:
    """The launch names more adapters than one batch can use, or than are kept in CPU memory.

    *What it checks*: the number of `--lora-modules` against `--max-loras` (1 where it is not given)
    and `--max-cpu-loras` (the same as `--max-loras` where it is not given).

    *Why it matters*: requests for further adapters wait until a slot is free. Adapters beyond
    `--max-cpu-loras` are read from disk again each time they are used after others.

    *How to fix*: raise `--max-loras` to the number of adapters that are used at the same time, and
    `--max-cpu-loras` to the number of all.
    """
    launch = subject.launch
    named = [ref.name for ref in launch.adapters if ref.at_startup]
    slots = launch.integer("--max-loras") or 1
    given = launch.integer("--max-cpu-loras") or 0
    kept = given if given > 0 else slots
    if not subject.lora_enabled or len(named) <= slots or slots < 1:
        return
    effect = f"{len(named)} adapters are named, {slots} can be used at the same time"
    if len(named) > kept:
        effect += f" and {kept} are kept in CPU memory"
    yield Defect(
        f"{effect} ({format_names(named)})",
        "raise `--max-loras` to the number that is used at the same time, and `--max-cpu-loras` "
        "to the number of all",
        subject.at("--max-loras"),
    )


def _may_update(launch: Launch) -> bool:
    return (launch.variable(_UPDATING) or "").strip().lower() in ("1", "true")


def _api_servers(launch: Launch) -> int:
    """Return how many API servers there are."""
    given = launch.integer(_SERVERS)
    if given is not None:
        return given
    is_external = launch.is_on("--data-parallel-external-lb") or launch.use("--data-parallel-rank")
    if is_external or launch.is_on("--data-parallel-multi-port-external-lb"):
        return 1
    if launch.is_on("--data-parallel-hybrid-lb") or launch.use("--data-parallel-start-rank"):
        return parallel_size(launch, "--data-parallel-size-local")
    return parallel_size(launch, "--data-parallel-size")
