"""A launch with what this machine knows about its model and its adapters: what rules look at.

All reading is here. What cannot be read is part of the subject, so that a rule can say what was
not checked; only a `--model` or `--lora` that is not there is an error.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Location
from inkling_cli.checks.launch.adapter_facts import AdapterFacts
from inkling_cli.checks.launch.launch import AdapterRef, Launch
from inkling_runtime.adapter.adapter import Adapter, read_adapter
from inkling_runtime.adapter.adapter_weights import WEIGHTS_NAME
from inkling_runtime.adapter.json_file import read_json_object
from inkling_runtime.adapter.lora_config import CONFIG_NAME
from inkling_runtime.adapter.model_spec import ModelSpec, architectures_of, parse_model_spec
from inkling_runtime.errors import InklingError

ReadAdapter = Callable[[Path], Adapter]


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The base model as far as it is known here.

    Attributes:
        ref: what the launch calls it; None where it names none.
        location: where the launch names it.
        config_path: its config.json, if there is one on this machine.
        architectures: as its config says.
        is_inkling: None where neither config nor name tells.
        spec: its sizes, if they are readable.
        problem: why the config cannot be read.
        quantization: what its config says of quantised weights, as JSON; empty for none.
        config: its config.json as read, for what only few need.
    """

    ref: str | None
    location: Location
    config_path: str | None = None
    architectures: tuple[str, ...] = ()
    is_inkling: bool | None = None
    spec: ModelSpec | None = None
    problem: str | None = None
    quantization: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UnreadAdapter:
    """An adapter that was not read, and why; `reason` is None where it just is not here."""

    ref: AdapterRef
    folder: str
    reason: str | None = None
    pickled: str | None = None
    """The file of its tensors, where they are there but pickled."""


@dataclass(frozen=True, slots=True, eq=False)
class LaunchSubject:
    """What the rules over launches look at; equal to itself only."""

    launch: Launch
    version: str
    model: ModelFacts
    adapters: tuple[AdapterFacts, ...] = ()
    unread: tuple[UnreadAdapter, ...] = ()
    gpu_memory: int | None = None
    """Bytes of each GPU, where the user says them."""

    @property
    def engine(self) -> Engine:
        """The engine that is launched."""
        return self.launch.engine

    @property
    def described_version(self) -> str:
        """The known version of the engine whose rules are applied."""
        return self.engine.described_version(self.version)

    @property
    def is_inkling(self) -> bool:
        """Whether the base model is an Inkling, by its config, its name, or its adapters."""
        if self.model.is_inkling is not None:
            return self.model.is_inkling
        return any(adapter.is_inkling for adapter in self.adapters)

    @property
    def lora_enabled(self) -> bool:
        """Whether the server will take adapters at all."""
        if self.engine is Engine.VLLM:
            return self.launch.is_on("--enable-lora")
        return self.launch.is_on("--enable-lora") or bool(self.launch.values("--lora-paths"))

    @property
    def startup_adapters(self) -> tuple[AdapterFacts, ...]:
        """The adapters that were read and that the server loads when it starts."""
        return tuple(adapter for adapter in self.adapters if adapter.ref.at_startup)

    def at(self, name: str) -> Location:
        """Return where an option or variable stands in the launch."""
        return self.launch.at(name)


def resolve_launch(
    launch: Launch,
    version: str | None = None,
    model: str | None = None,
    adapters: Sequence[AdapterRef] = (),
    read: ReadAdapter = read_adapter,
) -> LaunchSubject:
    """Return the subject of a launch, reading what lies on this machine.

    Args:
        launch: as parsed.
        version: of the engine; otherwise what the launch says, otherwise the known one.
        model: a folder or config.json to read in place of the model that the launch names.
        adapters: further adapters; one named like an adapter of the launch says where its files
            lie on this machine.
        read: reads an adapter's folder.

    Raises:
        InklingError: `model` or one of `adapters` does not exist.
    """
    for ref in adapters:
        if not _exists(_local(ref.path)):
            raise InklingError(f"`--lora {ref.path}` does not exist", "pass an adapter's folder")
    given = {ref.name: ref for ref in adapters}
    refs = [
        replace(ref, source=given[ref.name].path) if ref.name in given else ref
        for ref in launch.adapters
    ]
    names = {ref.name for ref in launch.adapters}
    refs += [ref for name, ref in given.items() if name not in names]
    known: list[AdapterFacts] = []
    unread: list[UnreadAdapter] = []
    for ref in refs:
        facts = read_adapter_facts(ref, read)
        if isinstance(facts, AdapterFacts):
            known.append(facts)
        else:
            unread.append(facts)
    return LaunchSubject(
        launch=replace(launch, adapters=tuple(refs)),
        version=version or launch.image_version or launch.engine.known_version,
        model=read_model_facts(launch, model),
        adapters=tuple(known),
        unread=tuple(unread),
    )


def read_adapter_facts(
    ref: AdapterRef, read: ReadAdapter = read_adapter
) -> AdapterFacts | UnreadAdapter:
    """Return an adapter's facts, or why there are none."""
    folder = ref.source or ref.path
    path = _local(folder)
    if not _exists(path):
        return UnreadAdapter(ref, folder)
    try:
        return AdapterFacts(ref, folder, read(path))
    except InklingError as error:
        return UnreadAdapter(ref, folder, error.message, _pickled(path))
    except OSError as error:
        return UnreadAdapter(ref, folder, error.strerror or str(error))


def _pickled(path: Path) -> str | None:
    """Return the name of an adapter's pickled tensors, if it has no others."""
    if _exists(path / WEIGHTS_NAME) or not _exists(path / CONFIG_NAME):
        return None
    names = ("adapter_model.bin", "adapter_model.pt")
    return next((name for name in names if _exists(path / name)), None)


def read_model_facts(launch: Launch, given: str | None) -> ModelFacts:
    """Return what is known of the base model.

    Raises:
        InklingError: `given` does not exist.
    """
    ref = given or launch.model
    if given is not None and not _exists(_local(given)):
        raise InklingError(f"`--model {given}` does not exist", "pass a folder or a config.json")
    names = [ref or "", launch.model or "", *launch.values("--served-model-name")]
    by_name = True if any(map(_is_named_inkling, names)) else None
    facts = ModelFacts(ref, launch.model_location, is_inkling=by_name)
    path = _local(ref) if ref else None
    if path is None or not _exists(path):
        return facts
    config_path = path / "config.json" if path.is_dir() else path
    try:
        config = read_json_object(config_path)
    except InklingError as error:
        return replace(facts, config_path=str(config_path), problem=error.message)
    return _with_config(replace(facts, config_path=str(config_path)), config)


def _is_named_inkling(name: str) -> bool:
    """Whether the end of a path or hub id says Inkling; folders above say nothing of a model."""
    return "inkling" in "/".join(name.rstrip("/").split("/")[-2:]).lower()


def _with_config(facts: ModelFacts, config: Mapping[str, Any]) -> ModelFacts:
    architectures = architectures_of(config)
    is_inkling = any("Inkling" in name for name in architectures) or str(
        config.get("model_type")
    ).startswith("inkling")
    quantization = config.get("quantization_config")
    facts = replace(
        facts,
        architectures=architectures,
        is_inkling=is_inkling,
        quantization=json.dumps(quantization) if quantization else "",
        config=config,
    )
    if not is_inkling:
        return facts
    try:
        return replace(facts, spec=parse_model_spec(dict(config), str(facts.config_path)))
    except InklingError as error:
        return replace(facts, problem=error.message)


def _local(name: str) -> Path:
    """Return a name as a path, the home folder written out where it is known."""
    try:
        return Path(name).expanduser()
    except RuntimeError:
        return Path(name)


def _exists(path: Path) -> bool:
    """Return whether a path is there; a name that no file system takes is not."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False
