"""Rules over the files of an adapter's folder, whoever consumes it: missing, torn, unusable."""

from collections.abc import Iterable, Iterator

from inkling_cli.checks.adapter.folder import INDEX_ENDING, AdapterFolder
from inkling_cli.checks.finding import Location, Severity
from inkling_cli.checks.rule import Defect, Registry
from inkling_cli.checks.shell_word import shell_word
from inkling_runtime.adapter.adapter_weights import (
    WEIGHTS_INDEX_NAME,
    WEIGHTS_NAME,
    shard_name,
)
from inkling_runtime.adapter.json_file import read_json_object
from inkling_runtime.adapter.lora_config import CONFIG_NAME, ConfigError
from inkling_runtime.adapter.shown import shown_text
from inkling_runtime.errors import InklingError, format_count, format_names

FOLDER_RULES: Registry[AdapterFolder] = Registry()

_ERROR = Severity.ERROR
_BASE_CONFIG = "config.json"
_TOKENS_NAME = "added_tokens.json"


@FOLDER_RULES.rule("ADP101", "weights-missing", _ERROR)
def check_weights_missing(folder: AdapterFolder) -> Iterator[Defect]:
    """An adapter's folder without weights.

    *What it checks*: whether the folder holds `adapter_model.safetensors`, or shards such as
    `adapter_model-00001-of-00002.safetensors`. Weights of other names and kinds have rules of
    their own.

    *Why it matters*: there is nothing to apply.

    *How to fix*: fetch or save the adapter again, with all of its files.
    """
    if not (folder.weights or folder.pickled or folder.factors_in):
        yield Defect(
            f"the folder holds no `{WEIGHTS_NAME}`",
            "fetch or save the adapter again, with all of its files",
            Location(str(folder.path)),
        )


@FOLDER_RULES.rule("ADP102", "weights-pickled", _ERROR)
def check_weights_pickled(folder: AdapterFolder) -> Iterator[Defect]:
    """Weights that are Python objects (`adapter_model.bin`) instead of safetensors.

    *What it checks*: whether `adapter_model.bin`, `.pt` or `.pth` lies where
    `adapter_model.safetensors` is missing.

    *Why it matters*: such a file can run code when it is loaded, so that this tool does not open
    it, and nothing of it is checked. Engines still read it.

    *How to fix*: load the adapter where it was trained and save it again with
    `save_pretrained(…, safe_serialization=True)`.
    """
    if folder.pickled and not folder.weights and not folder.factors_in:
        yield Defect(
            f"the weights are pickled Python objects in `{folder.pickled}`, "
            f"expected `{WEIGHTS_NAME}`",
            "save them with safetensors where they come from: pickled objects can run code when "
            "they are loaded",
            Location(str(folder.path / folder.pickled)),
        )


@FOLDER_RULES.rule("ADP103", "weights-elsewhere", _ERROR)
def check_weights_elsewhere(folder: AdapterFolder) -> Iterator[Defect]:
    """Weights under another name, in one file or in several.

    *What it checks*: where `adapter_model.safetensors` and its shards are missing, whether LoRA
    factors are in another `.safetensors` file, or in the files that an index of another name lists.

    *Why it matters*: vLLM and PEFT look for that one name and find nothing, this tool looks for it
    and for its shards; SGLang reads every `.safetensors` file of the folder.

    *How to fix*: rename the file. Of several rename the index, or without one the files, as the
    shards of an adapter; `inkling convert-adapter` joins shards in one file.
    """
    name = folder.factors_in
    if name is None or _is_base_model(folder):
        return
    if name.endswith(INDEX_ENDING):
        parts = _parts(folder, name)
        yield Defect(
            f"the weights are split into {len(parts)} files by `{name}` "
            f"({_shown(parts)}), expected one `{WEIGHTS_NAME}`",
            f"rename the index `{WEIGHTS_INDEX_NAME}`, then {_joining(folder)} joins them",
            Location(str(folder.path / name)),
        )
        return
    several = len(folder.further_weights) > 1
    also = f", one of {len(folder.further_weights)} safetensors files" if several else ""
    yield Defect(
        f"the weights are in `{name}`{also}, expected `{WEIGHTS_NAME}`",
        f"rename them `{shard_name(1, len(folder.further_weights))}` and so on, then "
        f"{_joining(folder)} joins them"
        if several
        else f"rename it `{WEIGHTS_NAME}`",
        Location(str(folder.path / name)),
    )


def _joining(folder: AdapterFolder) -> str:
    return f"`inkling convert-adapter {shell_word(str(folder.path))} --to vllm -o OUT`"


@FOLDER_RULES.rule("ADP104", "weights-unreadable", _ERROR)
def check_weights_unreadable(folder: AdapterFolder) -> Iterator[Defect]:
    """A weights file that is cut, torn or no safetensors file, or shards that are not whole.

    *What it checks*: the header of `adapter_model.safetensors` to the last byte: its length, JSON,
    names that stand twice, dtypes, shapes, and that the tensors cover the file exactly. Of shards
    each header, whether all of them are there, and whether each tensor is in one of them, the one
    that `adapter_model.safetensors.index.json` names.

    *Why it matters*: most readers refuse such a file; those that do not, read other numbers than
    were written. SGLang loads the shards that it finds and passes over the index.

    *How to fix*: fetch or save the adapter again.
    """
    problem = folder.weights_problem
    if problem is not None:
        yield Defect(
            problem.message,
            problem.hint or "fetch or save the adapter again",
            Location(str(folder.path / folder.weights[0])),
        )


@FOLDER_RULES.rule("ADP105", "config-missing", _ERROR)
def check_config_missing(folder: AdapterFolder) -> Iterator[Defect]:
    """An adapter's folder without its config.

    *What it checks*: whether the folder holds `adapter_config.json`.

    *Why it matters*: rank and alpha decide the scale of every delta, and are nowhere else. All
    engines refuse the adapter.

    *How to fix*: fetch `adapter_config.json` from where the weights come from.
    """
    if not folder.has_config and not _is_base_model(folder):
        yield Defect(
            f"the folder holds no `{CONFIG_NAME}`, which says rank and alpha",
            f"fetch `{CONFIG_NAME}` from where the weights come from",
            Location(str(folder.path)),
        )


@FOLDER_RULES.rule("ADP106", "config-unusable", _ERROR)
def check_config_unusable(folder: AdapterFolder) -> Iterator[Defect]:
    """A config that is not JSON, or in which a value that decides the effect is missing or wrong.

    *What it checks*: that adapter_config.json is a JSON object; that `r` is a positive integer and
    `lora_alpha` a finite number; the types of `use_rslora`, `rank_pattern`, `alpha_pattern`,
    `target_modules` and `target_parameters`.

    *Why it matters*: the scale of the deltas is not known. PEFT puts 8 where `r` or `lora_alpha`
    is missing, so that the adapter has another effect than it was trained for; engines refuse
    the adapter, or compute with what they find.

    *How to fix*: write the values that the adapter was trained with.
    """
    problem = folder.config_problem
    if problem is not None:
        key = problem.key if isinstance(problem, ConfigError) else None
        yield Defect(
            problem.message,
            problem.hint or "write the values that the adapter was trained with",
            Location(str(folder.path / CONFIG_NAME), key=key),
        )


@FOLDER_RULES.rule("ADP107", "base-model-with-factors", _ERROR)
def check_base_model_with_factors(folder: AdapterFolder) -> Iterator[Defect]:
    """A base model's folder whose weights hold LoRA factors.

    *What it checks*: a folder with `config.json` and without `adapter_model.safetensors`, in whose
    tensor names LoRA factors stand.

    *Why it matters*: a model that is saved while PEFT is wrapped around it becomes this. As a base
    model it loads with random weights where the names are `….base_layer.weight`; as an adapter it
    does not load at all.

    *How to fix*: save again with the `save_pretrained` of the PEFT model, not of the model inside.
    """
    if folder.factors_in is not None and _is_base_model(folder):
        yield Defect(
            f"the folder is a base model with LoRA factors inside, in `{folder.factors_in}`; "
            f"expected an adapter with `{WEIGHTS_NAME}` and `{CONFIG_NAME}`",
            "save it again with the PEFT model's own `save_pretrained`, not that of the model "
            "inside it",
            Location(str(folder.path / folder.factors_in)),
        )


@FOLDER_RULES.rule("ADP108", "further-weights", Severity.WARNING)
def check_further_weights(folder: AdapterFolder) -> Iterator[Defect]:
    """Other safetensors files beside an adapter's own.

    *What it checks*: whether any other file of the folder ends in `.safetensors`.

    *Why it matters*: SGLang reads them all as parts of the adapter, and where two have the same
    tensor, one of them wins. vLLM, PEFT and this tool read `adapter_model.safetensors` alone, also
    where shards lie beside it; this tool reads shards where that one file is missing.

    *How to fix*: move them out of the folder.
    """
    others = folder.further_weights
    if folder.weights and others:
        own = folder.weights[0]
        rest = "others read the one" if own == WEIGHTS_NAME else "this tool reads the shards"
        yield Defect(
            f"{format_names(others)} beside `{own}`: SGLang reads all safetensors files "
            f"as parts of the adapter, {rest} alone",
            "move out of the folder what is not part of the adapter",
            Location(str(folder.path / others[0])),
        )


@FOLDER_RULES.rule("ADP109", "added-tokens", Severity.WARNING)
def check_added_tokens(folder: AdapterFolder) -> Iterator[Defect]:
    """An adapter that was trained with tokens of its own.

    *What it checks*: whether `added_tokens.json` lies beside the weights and names any token.

    *Why it matters*: factors hold no rows for new tokens: the base model has no embedding for
    them. SGLang refuses such an adapter.

    *How to fix*: remove the file if the tokens are those of the base model; otherwise train
    without new tokens.
    """
    if _TOKENS_NAME not in folder.names:
        return
    try:
        tokens = list(read_json_object(folder.path / _TOKENS_NAME))
    except InklingError:
        return
    if tokens:
        yield Defect(
            f"`{_TOKENS_NAME}` adds {format_count(len(tokens), 'token')} ({_shown(tokens)}), "
            "the base model has no embeddings for new ones",
            f"remove `{_TOKENS_NAME}` if the base model has these tokens",
            Location(str(folder.path / _TOKENS_NAME)),
        )


def _shown(names: Iterable[str]) -> str:
    """Return names out of a stranger's file, each of them short."""
    return format_names([shown_text(name) for name in names])


def _is_base_model(folder: AdapterFolder) -> bool:
    return not folder.has_config and _BASE_CONFIG in folder.names


def _parts(folder: AdapterFolder, index: str) -> list[str]:
    names = read_json_object(folder.path / index).get("weight_map")
    return sorted({str(name) for name in names.values()}) if isinstance(names, dict) else []
