"""What `inkling check-adapter` finds in the adapters of a launch. No rules here."""

from functools import lru_cache

from inkling_cli.checks.adapter import check_itself, make_subject
from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Finding, Severity
from inkling_cli.checks.launch.adapter_facts import AdapterFacts
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.launch.vllm.loader import is_refused_for_itself

_KEYS_TOLD_BY_OTHERS = {
    Engine.SGLANG: ("use_dora", "peft_type"),
    Engine.VLLM: (
        *("use_dora", "lora_bias", "bias", "modules_to_save", "alora_invocation_tokens"),
        *("layer_replication", "use_bdlora", "use_qalora", "init_lora_weights"),
    ),
}
"""Settings beyond plain LoRA that rules over launches tell with the engine's own words."""

_ABOUT_NAMES = ("ADP001", "ADP009", "ADP010")


@lru_cache(maxsize=16)
def find_unsound(subject: LaunchSubject, facts: AdapterFacts) -> tuple[Finding, ...]:
    """Return why an adapter is not applied as it is meant; empty where it is sound.

    What vLLM refuses to load under every launch has rules of its own, which name what was refused;
    so have names that lead nowhere in vLLM.
    """
    judges_names = subject.engine is Engine.VLLM and subject.lora_enabled and subject.is_inkling
    if judges_names and is_refused_for_itself(subject, facts):
        return ()
    codes = _ABOUT_NAMES if judges_names else ()
    keys = _KEYS_TOLD_BY_OTHERS.get(subject.engine, ())
    judged = make_subject(facts.adapter, subject.model.spec)
    return tuple(
        finding
        for finding in check_itself(judged)
        if finding.severity is Severity.ERROR
        and finding.code not in codes
        and not (finding.code == "ADP008" and finding.location.key in keys)
    )
