"""Shell scripts → launches: lines, quotes, variables, exports, and what is not run."""

import pytest

from checks.launches import launches_in
from inkling_cli.checks.finding import Location, Severity
from inkling_cli.checks.launch.judge import Judge
from inkling_cli.checks.launch.launch import ProblemKind, Variable
from inkling_cli.checks.launch.parse.given import Given
from inkling_cli.checks.launch.parse.launches import parse_launches
from inkling_cli.checks.launch.parse.shell_words import iter_statements
from inkling_runtime.errors import InklingError


def only(text: str):
    (launch,) = launches_in(text)
    return launch


def test_continuation_lines_keep_their_numbers():
    launch = only("#!/bin/sh\nvllm serve M \\\n  --enable-lora \\\n  --max-loras 4\n")
    assert launch.at("--enable-lora") == Location("serve.sh", 3, "--enable-lora")
    assert launch.at("--max-loras").line == 4
    assert launch.at("--max-cpu-loras").line == 2


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve M --seed 1 # --enable-lora",
        "vllm serve M --seed 1; echo --enable-lora",
        "vllm serve M --seed 1 > log --enable-lora-is-not-here 2>&1 &",
        "vllm serve M --seed 1 2>&1 | tee log",
        "(vllm serve M --seed 1)",
        "if true; then vllm serve M --seed 1; fi",
        "exec vllm serve M --seed 1",
        "cat > x <<EOF\nvllm serve N\nEOF\nvllm serve M --seed 1",
        "vllm serve M --seed 1\r\n",
    ],
)
def test_only_the_command_itself_counts(text):
    launch = only(text)
    assert (launch.model, launch.text("--seed")) == ("M", "1")
    assert not launch.is_on("--enable-lora")


@pytest.mark.parametrize(
    "text",
    [
        "M=/m; vllm serve $M",
        'M="/m"\nvllm serve "$M"',
        "M='/m'; vllm serve ${M}",
        "vllm serve ${M:-/m}",
        'vllm serve "${M:=/m}"',
        "M=; vllm serve ${M:-/m}",
        "D=/; vllm serve ${M:-${D}m}",
        "vllm serve /'m'",
        'vllm serve /"m"',
        "vllm serve \\/m",
        "A=(serve /m)\nvllm ${A[@]}",
        'A=(serve)\nA+=(/m)\nvllm "${A[@]}"',
        "M=/; M+=m; vllm serve $M",
        "declare -r M=/m; vllm serve $M",
    ],
)
def test_variables_and_quotes_are_resolved(text):
    assert only(text).model == "/m"
    assert not list(only(text).problems_of(ProblemKind.UNKNOWN_SHELL_VALUE))


def test_empty_array_adds_no_word():
    assert only('A=()\nvllm serve M "${A[@]}"').problems == ()


def test_quoted_words_stay_together():
    launch = only("""vllm serve M --lora-modules '{"name": "a b", "path": "/x"}'""")
    assert launch.adapters[0].name == "a b"


@pytest.mark.parametrize(
    "text",
    [
        "X=$(nproc)\nvllm serve M --seed $X",
        "X=1\nread X\nvllm serve M --seed $X",
        "X=1\nfor X in 1 2; do\nvllm serve M --seed ${X:-3}\ndone",
        "X=1\n((X++))\nvllm serve M --seed $X",
        "X=1\nprintf -v X 2\nvllm serve M --seed $X",
        "A=(--seed $(nproc))\nvllm serve M ${A[@]}",
        "vllm serve M --seed ${X%-*}",
        "export VLLM_X=$(date)\nvllm serve M",
        "export X=$(nproc)\nbash -c 'vllm serve M --seed $X'",
    ],
)
def test_what_only_running_tells_is_said_once_and_judged_by_no_rule(text):
    launch = only(text)
    assert len(list(launch.problems_of(ProblemKind.UNKNOWN_SHELL_VALUE))) == 1
    assert len(launch.problems) == 1
    (judged,) = Judge().launches([launch])
    assert {finding.severity for finding in judged.findings} == {Severity.INFO}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('A=(1 "2 3")\nvllm serve M --allowed-media-domains "${A[@]}"', ("1", "2 3")),
        ('A=(1 "2 3")\nvllm serve M --allowed-media-domains "${A[*]}"', ("1 2 3",)),
        ('A=(1 "2 3")\nvllm serve M --allowed-media-domains ${A[@]}', ("1", "2", "3")),
        ("A=(1 2)\nvllm serve M --allowed-media-domains x${A[@]}y", ("x1", "2y")),
        ('A=(1)\nvllm serve M --allowed-media-domains ${A[@]+"${A[@]}"}', ("1",)),
        ("A=' 1 2 '\nvllm serve M --allowed-media-domains x$A\"y\"", ("x", "1", "2", "y")),
        ('vllm serve M --allowed-media-domains ${A:-\'1 2\'} "${A:-"3 4"}"', ("1 2", "3 4")),
        ("vllm serve M --allowed-media-domains $'a\\x41\\'' \"$(:)\"", ("aA'", "$(:)")),
        ('A="it\'s)" B="$(echo ")")"\nvllm serve M --allowed-media-domains "$A"', ("it's)",)),
        ("vllm serve M > >(tee log) --allowed-media-domains x 3<&0", ("x",)),
    ],
)
def test_words_are_those_of_a_shell(text, values):
    assert only(text).values("--allowed-media-domains") == values


@pytest.mark.parametrize("text", ["vllm serve M $@", 'vllm serve M "$@"', "vllm serve M $(args)"])
def test_unknown_words_are_said_and_not_taken_for_arguments(text):
    launch = only(text)
    assert launch.model == "M"
    assert [p.kind for p in launch.problems] == [ProblemKind.UNKNOWN_SHELL_VALUE]


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("V=1 vllm serve M", "1"),
        ("export V=1\nvllm serve M", "1"),
        ("V=1\nexport V\nvllm serve M", "1"),
        ("V=1\nvllm serve M", None),
        ("export V=2\nV=1\nvllm serve M", "1"),
        ("set -a\nV=1\nvllm serve M", "1"),
        ("set -o allexport\nV=1\nset +a\nvllm serve M", "1"),
        ("declare -x V=1\nvllm serve M", "1"),
        ("export V=1\nunset V\nvllm serve M", None),
        ("export V=1\nexport -n V\nvllm serve M", None),
        ("export V=2\nV=1 vllm serve M", "1"),
        ("vllm serve M\nexport V=1", None),
        ("export V\nV=1\nvllm serve M", "1"),
        ('export "V=1"\nvllm serve M', "1"),
        ("declare -x V\nV=1\nvllm serve M", "1"),
        ("set -ea\nV=1\nvllm serve M", "1"),
        ("(export V=1)\nvllm serve M", None),
        ("(export V=1; vllm serve M)", "1"),
        ("export V=1 | cat\nvllm serve M", None),
        ("f() { local V=2; }\nexport V=1\nf\nvllm serve M", "1"),
        ("export V=1\nf() {\n  local V=2\n}\nf\nvllm serve M", "1"),
        ("case $1 in\n  a) export V=1 ;;\nesac\nvllm serve M", "1"),
        ("A=1\nA=2 V=$A vllm serve M", "2"),
        ("V=1 env -u V vllm serve M", None),
        ("export V=1\ndocker run vllm/vllm-openai M", None),
        ("export V=1\ndocker run -e V vllm/vllm-openai M", "1"),
        ("export V=1\nsudo vllm serve M", None),
        ("export V=1\nsudo -E vllm serve M", "1"),
        ("sudo V=1 vllm serve M", "1"),
        (': "${V:=1}"\nexport V\nvllm serve M', "1"),
        ("export V=1\nV+=2 vllm serve M", "12"),
        ("V=1 eval 'vllm serve M'", "1"),
        ("export V=1\neval 'vllm serve M'", "1"),
        ("V=1 true\nvllm serve M", None),
    ],
)
def test_variables_that_the_server_sees(text, seen):
    assert only(text).variable("V") == seen


def test_assignment_without_export_is_remembered():
    launch = only("V=1\nvllm serve M")
    assert launch.unseen["V"].location == Location("serve.sh", 1, "V")


def test_assignment_that_only_fills_the_command_is_not_remembered():
    assert only("V=1\nvllm serve M --seed $V").unseen == {}


def test_script_starts_from_the_given_environment():
    given = {"M": Variable("M", "/m", Location()), "V": Variable("V", "0", Location())}
    (launch,) = parse_launches("export V=1\nvllm serve $M", "serve.sh", Given(given))
    assert (launch.model, launch.variable("V")) == ("/m", "1")


def test_every_launch_of_a_script_is_read():
    launches = launches_in("vllm serve A &\nexport V=1\nsglang serve B")
    assert [(launch.engine.value, launch.model) for launch in launches] == [
        ("vllm", "A"),
        ("sglang", "B"),
    ]
    assert [launch.variable("V") for launch in launches] == [None, "1"]


@pytest.mark.parametrize(
    "text", ["echo hello", "# vllm serve M", "echo vllm serve M", "cat <<X\nvllm serve M\nX"]
)
def test_script_without_a_launch_is_an_error(text):
    with pytest.raises(InklingError, match="starts no"):
        launches_in(text)


def test_variable_that_doubles_without_end_is_an_error():
    text = "A=xx\n" + "A=$A$A\n" * 60 + "vllm serve $A"
    with pytest.raises(InklingError, match="larger than"):
        launches_in(text)


@pytest.mark.parametrize("text", ["'", '"', "${", "$(", "`", "\\", "A=(", "cat <<", "<<EOF"])
def test_unfinished_text_ends_somewhere(text):
    assert sum(len(statement.words) for statement in iter_statements(text)) <= 2
