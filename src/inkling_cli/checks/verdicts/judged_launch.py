"""The launch under which an engine gets an adapter: the user's, or the best one for it."""

from dataclasses import dataclass, replace
from pathlib import Path

from inkling_cli.checks.adapter.folder import AdapterFolder
from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Location
from inkling_cli.checks.launch.adapter_facts import AdapterFacts
from inkling_cli.checks.launch.launch import ENVIRONMENT, AdapterRef, Launch, Variable
from inkling_cli.checks.launch.parse.launches import parse_words
from inkling_cli.checks.launch.requirements import Needs, Requirements, needs_of, requirements
from inkling_cli.checks.launch.serving import adapter_entry, format_command, serving_words
from inkling_cli.checks.launch.subject import LaunchSubject, ReadAdapter, resolve_launch
from inkling_cli.checks.verdicts.question import Load, Question, with_adapter
from inkling_runtime.adapter.adapter import Adapter, read_adapter
from inkling_runtime.errors import InklingError


@dataclass(frozen=True, slots=True)
class JudgedLaunch:
    """A launch with the adapter in it.

    Attributes:
        subject: what the rules over launches look at.
        facts: the adapter as the engine sees it; None where it cannot be read.
        required: what the adapter needs of any launch.
        assumed: the command in words where it is the best one for the adapter, else None.
    """

    subject: LaunchSubject
    facts: AdapterFacts | None
    required: Requirements
    assumed: str | None


def resolve(folder: AdapterFolder, engine: Engine, question: Question) -> JudgedLaunch:
    """Return the launch that an engine is judged by.

    Raises:
        InklingError: the model that the user names is not there.
    """
    needs = _needs(folder)
    at_startup = question.load is Load.STARTUP
    required = requirements(engine, needs, at_startup=at_startup)
    is_packed = needs.is_packed and question.launch is None
    launch = question.launch or _best(engine, required, question)
    launch, ref = with_adapter(launch, folder.path, question.load, is_packed=is_packed)
    assumed = None
    if question.launch is None:
        entry = adapter_entry(engine, ref.name, ref.path, is_packed=needs.is_packed)
        words = serving_words(
            engine, question.model_name, required.words(), entry if at_startup else None
        )
        assumed = format_command(required, words)
    model = None if question.model is None else str(question.model)
    subject = resolve_launch(launch, question.version, model, read=_reader(folder))
    facts = next((facts for facts in subject.adapters if facts.name == ref.name), None)
    return JudgedLaunch(subject, facts, required, assumed)


def _needs(folder: AdapterFolder) -> Needs:
    if folder.adapter is None:
        return Needs(rank=1)
    place = Location(str(folder.path))
    ref = AdapterRef(folder.path.name, str(folder.path), place)
    return needs_of(AdapterFacts(ref, str(folder.path), folder.adapter))


def _best(engine: Engine, required: Requirements, question: Question) -> Launch:
    """Return the best launch, still without the adapter."""
    environment = {
        name: Variable(name, value, Location(ENVIRONMENT, key=name))
        for name, value in required.env.items()
    }
    given = replace(question.given, environment={**environment, **question.given.environment})
    return parse_words(serving_words(engine, question.model_name, required.words()), given)


def _reader(folder: AdapterFolder) -> ReadAdapter:
    """Return a function that reads adapters, and takes this one as it was read."""

    def read(path: Path) -> Adapter:
        if path.absolute() != folder.path.absolute():
            return read_adapter(path)
        if folder.adapter is None:
            raise folder.problem or InklingError(f"`{path}` was not read")
        return folder.adapter

    return read
