"""Rules over the files of an adapter: what SGLang refuses in them, and when."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Location, Severity
from inkling_cli.checks.launch.adapter_facts import AdapterFacts
from inkling_cli.checks.launch.advice import advise_conversion
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.sglang.causes import Cause
from inkling_cli.checks.launch.sglang.loading import Fault, load_stage, loading_fault
from inkling_cli.checks.launch.sglang.reading import layouts_of
from inkling_cli.checks.launch.sglang.scaling import wrongly_scaled
from inkling_cli.checks.launch.sglang.served_model import served_spec
from inkling_cli.checks.launch.sglang.weights import file_problem, further_files, index_problem
from inkling_cli.checks.launch.subject import LaunchSubject, UnreadAdapter
from inkling_cli.checks.launch.unsound import find_unsound
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage
from inkling_runtime.adapter.adapter_weights import WEIGHTS_NAME, read_weights
from inkling_runtime.adapter.json_file import MAX_JSON_BYTES, decode_json
from inkling_runtime.adapter.lora_config import CONFIG_NAME
from inkling_runtime.adapter.regular_file import open_regular
from inkling_runtime.adapter.shown import shown_text, shown_value
from inkling_runtime.adapter.weight_files import INDEX_NAME
from inkling_runtime.errors import InklingError

_ERROR, _SGLANG = Severity.ERROR, Engine.SGLANG
_TOKENS_NAME = "added_tokens.json"
_JOINED = re.compile(r",(?=[^,/={]+=)")


@LAUNCH_RULES.rule("SGL209", "adapter-tensors-refused", _ERROR, engine=_SGLANG)
def check_adapter_tensors_refused(subject: LaunchSubject) -> Iterator[Defect]:
    """SGLang cannot load an adapter that is sound in itself.

    *What it checks*: names and shapes of an adapter as SGLang merges them and copies them into its
    slots: q, k, v and r have to be there together, `w3` needs its `w1`, the head has the unpadded
    vocabulary, and every module is one that SGLang adapts. (What is wrong for every engine is
    LCH205.)

    *Why it matters*: some faults end the start of the server or the loading. Most show at the first
    request that uses the adapter: the scheduler fails.

    *How to fix*: `inkling convert-adapter DIR --to sglang -o OUT`.
    """
    if not (subject.lora_enabled and subject.is_inkling):
        return
    for adapter in subject.adapters:
        fault = loading_fault(subject, adapter)
        if fault is None or _is_told(subject, adapter, fault):
            continue
        yield Defect(
            f"adapter `{adapter.name}`: {fault.message}",
            advise_conversion(adapter, _SGLANG),
            Location(f"{adapter.folder.rstrip('/')}", key=fault.tensor),
            stage=fault.stage,
        )


@LAUNCH_RULES.rule(
    "SGL216", "adapters-joined-by-comma", _ERROR, engine=_SGLANG, stage=Stage.STARTUP
)
def check_adapters_joined_by_comma(subject: LaunchSubject) -> Iterator[Defect]:
    """Adapters are separated by commas, expected spaces.

    *What it checks*: paths of `--lora-paths` that are not on this machine and hold `,NAME=`.

    *Why it matters*: SGLang takes all that follows the first `=` for one path and does not start.

    *How to fix*: put a space between the adapters.
    """
    for unread in subject.unread:
        entry = f"{unread.ref.name}={unread.ref.path}"
        if unread.ref.at_startup and unread.reason is None and _JOINED.search(entry):
            apart = _JOINED.sub(" ", entry)
            yield Defect(
                f"`{entry}` holds a comma between adapters, expected a space",
                f"write `--lora-paths {apart}`",
                unread.ref.location,
            )


@LAUNCH_RULES.rule("SGL217", "further-file-refused", _ERROR, engine=_SGLANG)
def check_further_file_refused(subject: LaunchSubject) -> Iterator[Defect]:
    """A further safetensors file in an adapter's folder is broken, or an index hides the adapter.

    *What it checks*: the files beside the adapter's own that end in `.safetensors`, and whether a
    `model.safetensors.index.json` beside them lists those of the adapter.

    *Why it matters*: SGLang reads all of these files as parts of the adapter, and refuses it if one
    is broken. With an index it reads only what the index lists.

    *How to fix*: move the file out of the folder.
    """
    for adapter in subject.adapters if subject.lora_enabled else ():
        if problem := index_problem(adapter.adapter):
            yield Defect(
                f"adapter `{adapter.name}` has the index of a checkpoint beside it: {problem}",
                f"move `{INDEX_NAME}` out of `{adapter.folder}`",
                Location(adapter.folder),
                stage=load_stage(adapter),
            )
        for path in further_files(adapter.adapter):
            if problem := file_problem(path):
                yield Defect(
                    f"adapter `{adapter.name}` has a second file `{path.name}`: {problem}",
                    f"move `{path.name}` out of `{adapter.folder}`",
                    Location(adapter.folder),
                    stage=load_stage(adapter),
                )
                break


@LAUNCH_RULES.rule("SGL211", "dora-refused", _ERROR, engine=_SGLANG)
def check_dora_refused(subject: LaunchSubject) -> Iterator[Defect]:
    """An adapter is a DoRA adapter.

    *What it checks*: `use_dora` in each adapter's config.

    *Why it matters*: SGLang refuses the adapter, and at start-up does not start.

    *How to fix*: train without DoRA, or merge the adapter into the base model.
    """
    for adapter in subject.adapters if subject.lora_enabled else ():
        if adapter.config.values.get("use_dora"):
            yield Defect(
                f"adapter `{adapter.name}` uses DoRA, which SGLang refuses",
                "train without DoRA, or merge the adapter into the base model",
                adapter.at("use_dora"),
                stage=load_stage(adapter),
            )


@LAUNCH_RULES.rule("SGL212", "adapter-type-refused", _ERROR, engine=_SGLANG)
def check_adapter_type_refused(subject: LaunchSubject) -> Iterator[Defect]:
    """An adapter's config does not say that it is LoRA.

    *What it checks*: `peft_type` in each adapter's config, which has to be `LORA`, upper or lower
    case.

    *Why it matters*: SGLang refuses the adapter, with no more than the key's name as a reason.

    *How to fix*: set `"peft_type": "LORA"`.
    """
    for adapter in subject.adapters if subject.lora_enabled else ():
        kind = adapter.config.values.get("peft_type")
        if not isinstance(kind, str) or kind.lower() != "lora":
            shown = "no `peft_type`" if kind is None else f"the `peft_type` `{kind}`"
            yield Defect(
                f"adapter `{adapter.name}` has {shown}, expected `LORA`",
                'set `"peft_type": "LORA"` if it is LoRA',
                adapter.at("peft_type"),
                stage=load_stage(adapter),
            )


@LAUNCH_RULES.rule("SGL213", "adapter-adds-tokens", _ERROR, engine=_SGLANG)
def check_adapter_adds_tokens(subject: LaunchSubject) -> Iterator[Defect]:
    """An adapter adds tokens to the vocabulary.

    *What it checks*: added_tokens.json beside each adapter: ids at or above the model's unpadded
    vocabulary, and what is no list of ids by token.

    *Why it matters*: SGLang refuses the adapter, and at start-up does not start.

    *How to fix*: remove added_tokens.json if the tokens are not trained.
    """
    spec = served_spec(subject)
    for adapter in subject.adapters if subject.lora_enabled and spec is not None else ():
        added = _added_tokens(Path(adapter.adapter.path))
        if spec is not None and (found := _beyond(added, spec.unpadded_vocab_size)):
            yield Defect(
                f"adapter `{adapter.name}` {found}, expected ids below the model's "
                f"{spec.unpadded_vocab_size}",
                f"remove `{_TOKENS_NAME}` if the tokens are not trained",
                Location(str(adapter.adapter.path / _TOKENS_NAME)),
                stage=load_stage(adapter),
            )


@LAUNCH_RULES.rule("SGL215", "adapter-in-other-file", Severity.INFO, engine=_SGLANG)
def check_adapter_in_other_file(subject: LaunchSubject) -> Iterator[Defect]:
    """An adapter's tensors are in files of another name or kind than this tool reads.

    *What it checks*: adapter folders with other weights than adapter_model.safetensors, which are
    no whole set of shards either.

    *Why it matters*: SGLang reads any `.safetensors`, else `.bin`, else `.pt` file of the folder;
    rank, layout and names of this adapter were not checked.

    *How to fix*: save it as adapter_model.safetensors.
    """
    for unread in subject.unread:
        if name := other_weights(unread):
            yield Defect(
                f"adapter `{unread.ref.name}` is in `{name}`, which was not checked",
                "save it as `adapter_model.safetensors`",
                Location(unread.folder),
            )


def other_weights(unread: UnreadAdapter) -> str | None:
    """Return the file that SGLang would read where this tool finds no whole weights."""
    folder = Path(unread.folder)
    try:
        own = folder / WEIGHTS_NAME
        if not (folder / CONFIG_NAME).is_file() or own.exists() or own.is_symlink():
            return None
        if _is_readable(folder):
            return None
        for pattern in ("*.safetensors", "*.bin", "*.pt"):
            if found := sorted(folder.glob(pattern)):
                return found[0].name
    except OSError:
        pass
    return None


def _is_readable(folder: Path) -> bool:
    try:
        read_weights(folder)
    except InklingError:
        return False
    return True


def _is_told(subject: LaunchSubject, adapter: AdapterFacts, fault: Fault) -> bool:
    """Whether another rule speaks: SGL301 and SGL302 of layouts, SGL403 of ranks, LCH205."""
    if fault.is_layout and False in layouts_of(subject, adapter):
        return True
    return bool(wrongly_scaled(adapter, Cause.RANK_PATTERN)) or bool(find_unsound(subject, adapter))


def _added_tokens(folder: Path) -> Any:
    """Return what added_tokens.json holds; None where it is no file, or holds no JSON."""
    try:
        with open_regular(folder / _TOKENS_NAME) as file:
            return json.loads(decode_json(file.read(MAX_JSON_BYTES + 1), _TOKENS_NAME))
    except (InklingError, OSError, ValueError, RecursionError):
        return None


def _beyond(added: Any, vocab_size: int) -> str | None:
    """Return what in added_tokens.json SGLang refuses, in words; empty values are none."""
    if not added:
        return None
    if not isinstance(added, dict):
        return f"has an `{_TOKENS_NAME}` that is no object"
    for token, id_ in added.items():
        if not isinstance(id_, int | float):
            return f"adds the token `{shown_text(token)}` with the id {shown_value(id_)}"
    above = [id_ for id_ in added.values() if id_ >= vocab_size]
    return f"adds the token {min(above)}" if above else None
