"""No text makes the parsers fail with anything but an InklingError, and words parse back."""

import re
import shlex

from hypothesis import example, given, settings
from hypothesis import strategies as st

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.launch import LAUNCH_RULES
from inkling_cli.checks.launch.launch import Launch
from inkling_cli.checks.launch.parse.given import Given
from inkling_cli.checks.launch.parse.launches import parse_launches, parse_words
from inkling_cli.checks.launch.subject import LaunchSubject, ModelFacts
from inkling_runtime.errors import InklingError

WORDS = """
    vllm serve sglang M --enable-lora --max-loras --lora-modules a=/x --max_lora_rank - -- export
    A=1 A+=( ) $A ${A:- } ${A[@]} $( ` ' " \\ ; && | <<EOF 2>&1 # = unset { [ ] : &a *a env:
    lora-paths: {"lora_name": null true 1e999 0x é
"""
PIECES = st.sampled_from(
    [*WORDS.split(), "\n", "\nEOF\n", "set -a", "declare -x", "- ", "model: M", "\t", "\x85"]
)
YAML_WORDS = r"""
services:|apiVersion: v1|kind: Pod|  s:|  a: &a|  containers:|  - name: x|- |    |  |
    image: vllm/vllm-openai|    command: >-|    command: \||args: [--enable-lora, "a|"|']
    environment:|env:|    - name: A|value: "$(A)"|A=1|${A:-2}|$$|vllm serve M|--max-loras 0
    entrypoint: [sh, -c]|<<: *a|!!x|?|: |{|}|[|]|,|"--seed=\x41"|&b [*b]|2020-13-45|--- |...
"""
YAML_PIECES = st.sampled_from(["\n", "\t", *re.split(r"\||\n", YAML_WORDS)]) | st.just("\n")
TEXTS = st.one_of(st.text(max_size=200), st.lists(PIECES, max_size=25).map(" ".join))
TEXTS |= st.lists(PIECES, max_size=25).map("".join)
TEXTS |= st.lists(YAML_PIECES, max_size=25).map("".join)
TEXTS |= st.lists(YAML_PIECES, max_size=12).map(
    lambda pieces: "services:\n  s:\n    image: vllm/vllm-openai\n" + "".join(pieces)
)


def rules_run(launch: Launch) -> None:
    """Run every rule over a launch of which nothing is on this machine."""
    model = ModelFacts(launch.model, launch.model_location, is_inkling=True)
    subject = LaunchSubject(launch, launch.engine.known_version, model)
    for finding in LAUNCH_RULES.check(subject, subject.engine, subject.described_version):
        assert finding.message


@settings(max_examples=400, deadline=None)
@given(
    text=TEXTS,
    file=st.sampled_from(["x", "x.sh", "x.yaml", "x.json", ".env"]),
    engine=st.sampled_from([None, *Engine]),
)
@example(text="${" * 3000, file="x.sh", engine=None)
@example(text='"$(' * 2000, file="x.sh", engine=None)
@example(text="{" * 3000, file="x.yaml", engine=None)
@example(text="A=${B:-" * 900 + "x" + "}" * 900 + "\nvllm serve $A", file="x.sh", engine=None)
def test_any_text_gives_launches_or_an_error(text, file, engine):
    try:
        launches = parse_launches(text, file, Given(engine=engine))
    except InklingError:
        return
    assert launches
    for launch in launches:
        rules_run(launch)


@settings(max_examples=300, deadline=None)
@given(
    words=st.lists(st.one_of(PIECES, st.text(max_size=12)), max_size=12),
    engine=st.sampled_from(Engine),
)
def test_any_words_give_a_launch_once_the_engine_is_said(words, engine):
    rules_run(parse_words(words, Given(engine=engine)))


@settings(max_examples=200, deadline=None)
@given(
    words=st.lists(
        st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=12), max_size=6
    )
)
def test_quoted_words_survive_the_shell_reader(words):
    words = [word for word in words if word != "--"]
    text = shlex.join(["vllm", "serve", "M", "--allowed-media-domains", *words])
    (in_script,) = parse_launches(text, "x.sh")
    as_words = parse_words(shlex.split(text))
    assert in_script.model == as_words.model
    assert [use.values for use in in_script.uses] == [use.values for use in as_words.uses]
