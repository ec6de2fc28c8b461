"""Rules over the adapters that a launch names: whether they are there, names and paths."""

from collections.abc import Iterator
from pathlib import Path

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Location, Severity
from inkling_cli.checks.launch.adapter_facts import AdapterFacts
from inkling_cli.checks.launch.launch import AdapterRef
from inkling_cli.checks.launch.parse.arguments import is_unknown
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.sglang.adapter_files import other_weights
from inkling_cli.checks.launch.sglang.loading import loading_fault
from inkling_cli.checks.launch.subject import LaunchSubject, UnreadAdapter
from inkling_cli.checks.launch.unsound import find_unsound
from inkling_cli.checks.launch.vllm.lenient_config import takes_config
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage
from inkling_runtime.adapter.adapter_weights import WEIGHTS_NAME
from inkling_runtime.adapter.lora_config import read_lora_config
from inkling_runtime.adapter.safetensors_file import read_header
from inkling_runtime.errors import InklingError


@LAUNCH_RULES.rule("LCH201", "adapter-not-found", Severity.INFO)
def check_adapter_not_found(subject: LaunchSubject) -> Iterator[Defect]:
    """An adapter's folder is not on this machine.

    *What it checks*: whether each adapter's path is there. Hub ids are not: nothing is downloaded.

    *Why it matters*: rank, layout and targets of the adapter were not checked.

    *How to fix*: pass the folder as `--lora NAME=DIR`, NAME being the adapter's name in the launch.
    """
    for unread in subject.unread:
        if unread.reason is None and not is_unknown(unread.folder):
            yield Defect(
                f"adapter `{unread.ref.name}` at `{unread.folder}` is not on this machine; "
                "its rank and layout were not checked",
                f"pass its folder with `--lora {unread.ref.name}=DIR`",
                unread.ref.location,
            )


@LAUNCH_RULES.rule("LCH202", "adapter-unreadable", Severity.ERROR)
def check_adapter_unreadable(subject: LaunchSubject) -> Iterator[Defect]:
    """An adapter's folder is there but holds no readable adapter.

    *What it checks*: that adapter_config.json and adapter_model.safetensors or its shards are
    there, that the config says rank and alpha, and that the header of the tensors is sound.

    *Why it matters*: the server does not start, or refuses the adapter.

    *How to fix*: fetch or save the adapter again.
    """
    for unread in subject.unread:
        if unread.reason is None or _has_other_weights(subject, unread):
            continue
        yield Defect(
            f"adapter `{unread.ref.name}` cannot be read: {unread.reason}",
            "fetch or save the adapter again",
            Location(unread.folder),
            stage=_read_stage(subject, unread),
        )


@LAUNCH_RULES.rule("LCH205", "adapter-not-applied-whole", Severity.ERROR)
def check_adapter_not_applied_whole(subject: LaunchSubject) -> Iterator[Defect]:
    """The engine takes an adapter but drops, misapplies or cannot use a part of it.

    *What it checks*: what `inkling check-adapter` checks, for each adapter that was read, for the
    engine that is launched, and against the model if its config was read. Scalings and
    targets that SGLang ignores or refuses have rules of their own.

    *Why it matters*: the server starts, and answers as if the adapter had never been trained, or
    as another adapter.

    *How to fix*: `inkling convert-adapter` makes it right for the engine; `inkling check-adapter`
    shows every finding.
    """
    for facts in subject.adapters:
        found = find_unsound(subject, facts)
        if not found:
            continue
        rest = len(found) - 1
        more = f" (and {rest} more finding{'s' * (rest > 1)})" if rest else ""
        yield Defect(
            f"adapter `{facts.name}`: {found[0].message}{more}",
            f"`inkling check-adapter {facts.folder} --engine {subject.engine.value}` "
            "shows all and how to repair them",
            facts.ref.location,
            stage=_use_stage(subject, facts),
        )


def _use_stage(subject: LaunchSubject, facts: AdapterFacts) -> Stage | None:
    """Return where SGLang ends with an adapter that is not applied whole; else it is served."""
    if subject.engine is not Engine.SGLANG:
        return Stage.SERVED
    fault = loading_fault(subject, facts)
    return fault.stage if fault else Stage.SERVED


def _has_other_weights(subject: LaunchSubject, unread: UnreadAdapter) -> bool:
    """Return whether the engine reads an adapter that this tool does not."""
    if subject.engine is Engine.VLLM:
        return unread.pickled is not None
    return other_weights(unread) is not None


def _read_stage(subject: LaunchSubject, unread: UnreadAdapter) -> Stage:
    """Return the stage at which the engine fails to read an adapter; some it reads."""
    is_read = _has_a_name_twice(unread) or (
        subject.engine is Engine.VLLM and takes_config(subject, unread)
    )
    return Stage.SERVED if is_read else _load_stage(subject, unread.ref)


def _has_a_name_twice(unread: UnreadAdapter) -> bool:
    """Return whether nothing but a name that stands twice in the header keeps us from reading."""
    folder = Path(unread.folder).expanduser()
    try:
        read_header(folder / WEIGHTS_NAME, keeps_last=True)
        read_lora_config(folder)
    except (InklingError, OSError):
        return False
    return True


def _load_stage(subject: LaunchSubject, ref: AdapterRef) -> Stage:
    """Return the stage at which the engine reads an adapter's files."""
    if subject.engine is Engine.VLLM:
        return Stage.ADAPTER_LOAD
    return Stage.STARTUP if ref.at_startup else Stage.DYNAMIC_LOAD


@LAUNCH_RULES.rule("LCH203", "adapter-name-twice", Severity.ERROR)
def check_adapter_name_twice(subject: LaunchSubject) -> Iterator[Defect]:
    """Two adapters have the same name.

    *What it checks*: the names of all adapters that the launch loads at start-up.

    *Why it matters*: the server refuses the second one and does not start.

    *How to fix*: give each adapter its own name.
    """
    for first, second in _pairs(subject, "name"):
        option = subject.engine.adapters_option
        if first.path == second.path:
            message = f"adapter `{second.name}` is named twice in `{option}`"
            remedy = f"remove one `{second.name}={second.path}`"
        else:
            message = f"`{first.path}` and `{second.path}` are both named `{second.name}`"
            remedy = f"`{option} {first.name}={first.path} {second.name}-2={second.path}`"
        yield Defect(message, remedy, second.location, stage=_load_stage(subject, second))


@LAUNCH_RULES.rule("LCH204", "adapter-path-twice", Severity.WARNING)
def check_adapter_path_twice(subject: LaunchSubject) -> Iterator[Defect]:
    """One adapter is loaded under two names.

    *What it checks*: the paths of all adapters that the launch loads at start-up.

    *Why it matters*: the adapter takes two slots and two copies in memory, and the prefix caches of
    both names are apart.

    *How to fix*: keep one of the names.
    """
    for first, second in _pairs(subject, "path"):
        if first.name != second.name:
            yield Defect(
                f"`{second.path}` is loaded twice, as `{first.name}` and as `{second.name}`",
                f"keep one of them: `{first.name}={first.path}`",
                second.location,
            )


def _pairs(subject: LaunchSubject, attribute: str) -> Iterator[tuple[AdapterRef, AdapterRef]]:
    """Yield start-up adapters that share an attribute, each with the first that has it."""
    seen: dict[str, AdapterRef] = {}
    for ref in subject.launch.adapters:
        if not ref.at_startup:
            continue
        key = getattr(ref, attribute).rstrip("/")
        if key in seen:
            yield seen[key], ref
        else:
            seen[key] = ref
