"""Rules about what a consumer silently drops, misapplies or refuses in a sound adapter."""

from collections.abc import Iterator

from inkling_cli.checks.adapter.subject import ADAPTER_RULES, AdapterSubject
from inkling_cli.checks.finding import Location, Severity
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.sglang_targets import unknown_targets
from inkling_runtime.adapter.adapter import AdapterModule
from inkling_runtime.adapter.layouts import Layout
from inkling_runtime.adapter.sites import Group
from inkling_runtime.errors import format_names

_ERROR = Severity.ERROR


@ADAPTER_RULES.rule("VLA001", "shared-experts-dropped", _ERROR, engine="vllm", since="0.33.0")
def check_shared_experts_dropped(subject: AdapterSubject) -> Iterator[Defect]:
    """Shared-expert modules under a name that vLLM accepts and never applies.

    *What it checks*: modules named `mlp.shared_experts.…`; vLLM's module is `mlp.sink_experts`.

    *Why it matters*: the name passes vLLM's check, which looks at the last part only, and then
    matches nothing. The adapter loads and its shared-expert part has no effect; the only trace
    is a debug line.

    *How to fix*: `inkling convert-adapter ADAPTER --to vllm -o OUT` renames them.
    """
    modules = [m for m in subject.adapter.modules if ".mlp.shared_experts." in m.name]
    if modules and subject.adapter.dialect.name != "peft":
        yield _defect(
            subject,
            modules,
            f"vLLM drops {_share(subject, modules)} silently, "
            "it looks for `sink_experts` where they say `shared_experts`",
            "vllm",
        )


@ADAPTER_RULES.rule("VLA002", "dense-rows-not-interleaved", _ERROR, engine="vllm", since="0.33.0")
def check_dense_rows_misread_by_vllm(subject: AdapterSubject) -> Iterator[Defect]:
    """Rows of the dense gate_up lora_B that vLLM adds to the wrong channels.

    *What it checks*: dense gate_up modules whose lora_B rows are [gate; up]. vLLM keeps its base
    rows interleaved (g0, u0, g1, u1 and so on) and adds lora_B row by row.

    *Why it matters*: half of the gate's delta lands on up and the other way round, without a
    message: a relative error of 0.83 was measured on such a layer.

    *How to fix*: `inkling convert-adapter ADAPTER --to vllm -o OUT` interleaves the rows.
    """
    modules = _with_layout(subject, Layout.GATE_UP)
    if modules:
        yield _defect(
            subject,
            modules,
            f"vLLM misapplies {_share(subject, modules)}: "
            "it reads lora_B rows as g0, u0, g1, u1, …, on disk they are [gate; up]",
            "vllm",
        )


@ADAPTER_RULES.rule("VLA003", "peft-names-refused", _ERROR, engine="vllm", since="0.33.0")
def check_foreign_names_for_vllm(subject: AdapterSubject) -> Iterator[Defect]:
    """Names of PEFT on transformers, which vLLM refuses for Inkling.

    *What it checks*: modules named as in transformers (`self_attn.q_proj` and so on).

    *Why it matters*: vLLM refuses the adapter when it is loaded: "expected target modules in …".

    *How to fix*: `inkling convert-adapter ADAPTER --to vllm -o OUT`.
    """
    yield from _foreign(subject, "vLLM refuses the adapter", "vllm")


@ADAPTER_RULES.rule("SGA001", "sink-experts-dropped", _ERROR, engine="sglang", since="0.5.23")
def check_sink_experts_dropped(subject: AdapterSubject) -> Iterator[Defect]:
    """Shared-expert modules under vLLM's name, which SGLang never applies.

    *What it checks*: modules named `mlp.sink_experts.…`.

    *Why it matters*: SGLang accepts the file and drops them without a message.

    *How to fix*: `inkling convert-adapter ADAPTER --to sglang -o OUT` renames them.
    """
    modules = [m for m in subject.adapter.modules if ".mlp.sink_experts." in m.name]
    if modules:
        yield _defect(
            subject,
            modules,
            f"SGLang drops {_share(subject, modules)} silently, "
            "it looks for `shared_experts` where they say `sink_experts`",
            "sglang",
        )


@ADAPTER_RULES.rule("SGA002", "dense-rows-interleaved", _ERROR, engine="sglang", since="0.5.23")
def check_dense_rows_misread_by_sglang(subject: AdapterSubject) -> Iterator[Defect]:
    """Rows of the dense gate_up lora_B that SGLang adds to the wrong channels.

    *What it checks*: dense gate_up modules whose lora_B rows are interleaved, as vLLM needs them.
    SGLang de-interleaves its base and reads [gate; up].

    *Why it matters*: the delta lands on the wrong channels without a message.

    *How to fix*: `inkling convert-adapter ADAPTER --to sglang -o OUT`.
    """
    modules = _with_layout(subject, Layout.GATE_UP_INTERLEAVED)
    if modules:
        yield _defect(
            subject,
            modules,
            f"SGLang misapplies {_share(subject, modules)}: "
            "it reads lora_B rows as [gate; up], on disk they are g0, u0, g1, u1, …",
            "sglang",
        )


@ADAPTER_RULES.rule("SGA003", "peft-names-fail-late", _ERROR, engine="sglang", since="0.5.23")
def check_foreign_names_for_sglang(subject: AdapterSubject) -> Iterator[Defect]:
    """Names of PEFT on transformers, on which SGLang fails at first use.

    *What it checks*: modules named as in transformers (`self_attn.q_proj` and so on).

    *Why it matters*: start-up succeeds; the first request with the adapter raises in the
    scheduler.

    *How to fix*: `inkling convert-adapter ADAPTER --to sglang -o OUT`.
    """
    yield from _foreign(subject, "SGLang fails when the adapter is first used", "sglang")


@ADAPTER_RULES.rule("SGA004", "scaling-ignored", _ERROR, engine="sglang", since="0.5.23")
def check_scaling_ignored(subject: AdapterSubject) -> Iterator[Defect]:
    """Scaling by rsLoRA or patterns, which SGLang does not read.

    *What it checks*: whether any module's scaling differs from lora_alpha / r.

    *Why it matters*: SGLang always scales by lora_alpha / r, so these modules get a wrong scale
    without a message.

    *How to fix*: `inkling convert-adapter ADAPTER --to sglang -o OUT` writes one scaling.
    """
    config = subject.adapter.config
    taken = config.alpha / config.rank
    modules = [m for m in subject.adapter.modules if m.scaling != taken]
    if modules:
        yield _defect(
            subject,
            modules,
            f"SGLang scales by lora_alpha / r = {taken:g}, "
            f"{_share(subject, modules)} need {modules[0].scaling:g}",
            "sglang",
        )


@ADAPTER_RULES.rule("SGA005", "targets-refused", _ERROR, engine="sglang", since="0.5.23")
def check_targets_refused(subject: AdapterSubject) -> Iterator[Defect]:
    """Names in `target_modules` that SGLang does not have.

    *What it checks*: `target_modules` in adapter_config.json: the words `all-linear` and `all`,
    or a list of SGLang's runtime names. Trainers' names (`wq_du`, `w1`) are neither.

    *Why it matters*: SGLang refuses to start, or refuses the adapter when it is loaded later.

    *How to fix*: `inkling convert-adapter ADAPTER --to sglang -o OUT` writes names that it has.
    """
    unknown = unknown_targets(subject.adapter.config)
    if unknown and subject.adapter.dialect.name != "peft":
        yield Defect(
            f"SGLang refuses the adapter: it has {unknown}, which SGLang does not know",
            f"inkling convert-adapter {subject.path} --to sglang -o OUT",
            Location(file=str(subject.adapter.path / "adapter_config.json"), key="target_modules"),
        )


@ADAPTER_RULES.rule("PFA001", "names-without-match", _ERROR, engine="peft", since="0.18.0")
def check_foreign_names_for_peft(subject: AdapterSubject) -> Iterator[Defect]:
    """Names that PEFT on transformers does not match.

    *What it checks*: whether the adapter is in PEFT's dialect.

    *Why it matters*: PEFT loads the adapter "successfully", reports only keys that the model
    lacks, and computes the base model.

    *How to fix*: `inkling convert-adapter ADAPTER --to peft --model MODEL -o OUT`.
    """
    if subject.adapter.dialect.name != "peft" and subject.adapter.modules:
        yield _defect(
            subject,
            list(subject.adapter.modules),
            f"PEFT matches none of {len(subject.adapter.modules)} modules by name and "
            "computes the base model",
            "peft",
        )


def _with_layout(subject: AdapterSubject, layout: Layout) -> list[AdapterModule]:
    return [m for m in subject.adapter.modules if m.parsed.row.layout is layout]


def _foreign(subject: AdapterSubject, outcome: str, target: str) -> Iterator[Defect]:
    modules = list(subject.adapter.modules)
    if subject.adapter.dialect.name == "peft" and modules:
        yield _defect(
            subject, modules, f"{outcome}: its names are those of PEFT on transformers", target
        )


def _share(subject: AdapterSubject, modules: list[AdapterModule]) -> str:
    """Return how much is concerned: `6 of 30 modules (`a`, `b`, `c` and 3 more)`."""
    names = format_names([module.name for module in modules])
    return f"{len(modules)} of {len(subject.adapter.modules)} modules ({names})"


def _defect(
    subject: AdapterSubject, modules: list[AdapterModule], message: str, target: str
) -> Defect:
    groups = {site.kind.group for module in modules for site in module.sites}
    needs_model = target == "peft" or groups == {Group.HEAD}
    model = " --model MODEL" if needs_model else ""
    return Defect(
        message,
        f"inkling convert-adapter {subject.path} --to {target}{model} -o OUT",
        Location(file=str(subject.adapter.file.path), key=modules[0].name),
    )
