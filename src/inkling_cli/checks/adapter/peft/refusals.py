"""Why PEFT refuses an adapter before it looks at its tensors, or why it is not known here."""

from collections.abc import Iterator
from dataclasses import dataclass

from inkling_cli.checks.adapter.peft import settings
from inkling_cli.checks.adapter.peft.targets import NOTHING, saved_paths
from inkling_cli.checks.adapter.peft.tree import EMBEDDING, ModelModule, ModelTree, ModuleKind
from inkling_runtime.adapter.lora_config import LoraConfig
from inkling_runtime.adapter.shown import shown_text
from inkling_runtime.errors import format_names

FILES = "files not read"
SETTINGS = "settings refused"
NO_TARGET = "nothing targeted"
SAVED = "saved module incomplete"
SHAPES = "shapes refused"
UNSETTLED = "not known"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why PEFT refuses an adapter whole, or why it is not known what it does."""

    cause: str
    reason: str


def refusals_of_settings(config: LoraConfig, tree: ModelTree) -> Iterator[Refusal]:
    """Yield why PEFT refuses a config whatever the targets, then what is not known of it."""
    mm = tree.is_multimodal
    for reason in settings.refused_settings(config, is_multimodal=mm):
        yield Refusal(SETTINGS, f"the config has {reason}")
    for reason in (
        *settings.unreadable_settings(config.values),
        *settings.unsettled_settings(config),
    ):
        yield Refusal(UNSETTLED, f"what PEFT does with {reason} is not known here")


def refusals_of_targets(
    config: LoraConfig,
    tree: ModelTree,
    modules: list[ModelModule],
    parameters: list[tuple[ModelModule, list[str]]],
) -> Iterator[Refusal]:
    """Yield why PEFT refuses what the targets select."""
    if not modules and not parameters and config.target_modules != NOTHING:
        yield Refusal(NO_TARGET, _no_target(config))
    if parameters:
        has_linear = any(module.kind is ModuleKind.LINEAR for module in modules)
        for reason in settings.refused_with_parameters(config.values, has_linear=has_linear):
            yield Refusal(SETTINGS, f"the config has {reason}")
    for module in modules:
        yield from _refusals_of_module(module, config)
    wrapped = {module.path for module in modules}
    for module, names in parameters:
        for name in names:
            shape = module.parameters[name]
            if module.path in wrapped:
                reason = f"`target_modules` and `target_parameters` both select `{module.path}`"
                yield Refusal(SETTINGS, reason)
            elif shape is not None and len(shape) not in (2, 3):
                reason = f"`target_parameters` selects `{module.path}.{name}`, a vector"
                yield Refusal(SETTINGS, reason)
    held = {module.path for module, _ in parameters} | wrapped
    yield from _refusals_of_saved(config, tree, held)


def _no_target(config: LoraConfig) -> str:
    targets = config.target_modules
    names = [targets] if isinstance(targets, str) else [*(targets or ())]
    names += config.target_parameters
    if not names:
        return "the config names no `target_modules` and no `target_parameters`"
    shown = format_names([shown_text(name) for name in names])
    return f"none of the targets ({shown}) is in the transformers model"


def _refusals_of_module(module: ModelModule, config: LoraConfig) -> Iterator[Refusal]:
    rank = config.rank_of(module.path)
    if module.kind in (ModuleKind.OTHER, ModuleKind.LIST):
        reason = f"`target_modules` selects `{module.path}`, which is no layer that PEFT wraps"
        yield Refusal(SETTINGS, reason)
    elif module.kind is ModuleKind.CONVOLUTION:
        shape = module.parameters["weight"]
        if shape is not None and rank % shape[0]:
            yield Refusal(
                SETTINGS,
                f"`target_modules` selects the convolution `{module.path}` of {shape[0]} groups, "
                f"which do not divide the rank {rank}",
            )
    elif module.kind is ModuleKind.EMBEDDING and config.values.get("lora_bias"):
        yield Refusal(SETTINGS, f"the config has `lora_bias`, which `{module.path}` cannot have")


def _refusals_of_saved(config: LoraConfig, tree: ModelTree, held: set[str]) -> Iterator[Refusal]:
    saved = saved_paths(config, tree)
    for path in saved:
        is_list = tree.modules[path].kind is ModuleKind.LIST
        if is_list or path in held:
            what = "a list of modules" if is_list else "a module that LoRA wraps"
            yield Refusal(SETTINGS, f"`modules_to_save` selects `{path}`, {what}")
    inside = [
        path
        for path in saved
        for other in (*held, *saved)
        if path.startswith(other + ".") or other.startswith(path + ".")
    ]
    unsure = [path for path in saved if not tree.modules[path].is_certain]
    for path in (inside + unsure)[:1]:
        yield Refusal(
            UNSETTLED, f"what PEFT does with `{path}` in `modules_to_save` is not known here"
        )
    tokens = config.values.get("trainable_token_indices") is not None
    embedding = f"{tree.root}{EMBEDDING}"
    if tokens and (embedding in held or any(embedding.startswith(path) for path in saved)):
        yield Refusal(SETTINGS, "`trainable_token_indices` beside another change of the embedding")
