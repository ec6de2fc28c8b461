"""Shell scripts for hypothesis, made of the pieces that launch scripts are made of.

Left out is what the reader of scripts does on purpose otherwise than bash: both branches of a
condition are read, a loop is run once, and a function is read where it is defined.
"""

from hypothesis import strategies as st

NAMES = st.sampled_from(["A", "B", "VLLM_X", "SGLANG_Y", "INKLING_Z"])
VALUES = st.sampled_from(
    [
        *(
            "1",
            "x",
            "a=b",
            "--seed=7",
            "''",
            '""',
            "'a\"b'",
            '"a\'b"',
            "'a\\b'",
            '"a\\\\b"',
            '"a\\b"',
        ),
        *(
            "'a b'",
            '"a  b"',
            '"a \\"b\\" \\$c \\`"',
            "$'a\\tb'",
            "$'it\\'s\\x41'",
            '$"hi"',
            "a#b",
            "a\\ b",
        ),
        *("$A", "${A}", '"$A"', '"${A}"', '"x$A"', "x${A}y", '"$A $B"', "'$A'", '"\\$A"'),
        *(
            "${B:-y}",
            "${B-y}",
            '"${B:-y z}"',
            "${B:-$A}",
            "${B:-'q r'}",
            '"${B:-"q r"}"',
            "${B:+w}",
        ),
        *("${B:=z}", '"${A:+--seed $A}"', "${A:+-x}", "$((1 + 2))", "$(echo 5)", "`echo 5`"),
        *('"$(echo "a)b")"', '"${#A}"', "${A%x}", "${A##*/}", "${A//a/b}", "${A:0:1}", '{"a":1}'),
        *('"${L[*]}"', "${L[0]}", "${#L[@]}", "$L", "é", "/a/b", "'a\nb'", '"a\\\nb"', "a\\\nb"),
        *('"a\nb"', "$1", "$#", '"$*"', "${A-}", "a,b", "%", "a:b", "'#'", '"#"', "\\#", "--"),
    ]
)
WORDS = st.one_of(
    VALUES,
    st.sampled_from(
        [
            "--seed",
            "--enable-lora",
            "--max-loras",
            '"${L[@]}"',
            "${L[@]}",
            "$A",
            "$B",
            "--port=1",
            "--lora-modules",
            "n=/p",
            "--no-enable-lora",
            "${L[*]}",
            '"$@"',
            '${L[@]+"${L[@]}"}',
        ]
    ),
)
GAPS = st.sampled_from([" ", "  ", "\t", " \\\n", " \\\n  "])


def join_words(words: list[tuple[str, str]]) -> str:
    return "".join(gap + word for gap, word in words)


ASSIGNMENTS = st.builds("{}{}{}".format, NAMES, st.sampled_from(["=", "=", "+="]), VALUES)
ARRAYS = st.builds(
    "L{}({}\n)".format,
    st.sampled_from(["=", "=", "+="]),
    st.lists(st.tuples(st.sampled_from([" ", "\n  ", " # why\n"]), WORDS), max_size=4).map(
        join_words
    ),
)
DECLARED = st.builds(
    "{} {}".format,
    st.sampled_from(["export", "declare -x", "typeset -x", "declare", "export --"]),
    st.one_of(ASSIGNMENTS, st.builds('"{}={}"'.format, NAMES, st.sampled_from(["1", "$A", "a b"]))),
)
SIMPLE = st.one_of(
    ASSIGNMENTS,
    ARRAYS,
    DECLARED,
    st.lists(ASSIGNMENTS, min_size=2, max_size=3).map(" ".join),
    st.builds("export {} {}".format, NAMES, NAMES),
    st.builds("{} {}".format, st.sampled_from(["unset", "unset -v", "export -n"]), NAMES),
    st.sampled_from(["set -a", "set +a", "set -o allexport", "set -e +e", "# vllm serve C", ""]),
    st.sampled_from(["echo vllm serve N", 'echo "vllm serve N" > /dev/null', "true | cat", ":"]),
    st.sampled_from(["cat <<E >/dev/null\nvllm serve '$A\nE", "cat <<'E' <<-F\na\nE\n\tb\n\tF"]),
    st.sampled_from(["(( A = 4 ))", "((A++)) || true", "[[ a < b ]]", "[ $# -gt 3 ] || :"]),
    st.builds(": {}".format, st.sampled_from(['"${A:=1}"', "${VLLM_X:=2}", '"${B:-3}"'])),
    st.builds("read -r {} <<< '8 9'".format, NAMES),
    st.builds("printf -v {} 3".format, NAMES),
    st.builds("{}=1 true".format, NAMES),
    st.builds("( {} )".format, st.one_of(ASSIGNMENTS, DECLARED)),
    st.builds("f() {{\n{}\n}}\nf\n{}".format, ASSIGNMENTS, DECLARED),
    st.builds("{{ {}; }}".format, st.one_of(ASSIGNMENTS, DECLARED)),
    st.builds("f() {{ local {}; }}".format, ASSIGNMENTS),
    st.builds("case x in\n  x) {} ;;\nesac".format, st.one_of(ASSIGNMENTS, DECLARED)),
    st.builds("if true; then\n  {}\nfi".format, st.one_of(ASSIGNMENTS, DECLARED)),
    st.builds("true && {}".format, st.one_of(ASSIGNMENTS, DECLARED)),
    st.builds("for {} in 1; do :; done".format, NAMES),
)
SERVERS = st.sampled_from(
    [
        "vllm serve M",
        "sglang serve M",
        "python3 -m sglang.launch_server --model-path M",
        '"vllm" ser"ve" M',
        "vllm \\\n  serve M",
    ]
)
WRAPPERS = st.sampled_from(
    [
        "",
        "",
        "",
        "env",
        "exec",
        "nohup",
        "command",
        "env VLLM_X=5",
        "env -u VLLM_X",
        "time",
        'env --unset=INKLING_Z VLLM_X="$A"',
        "nice -n 3",
        "timeout 9",
        "env 'VLLM_X=a b'",
    ]
)
COMMANDS = st.builds(
    "{} {} {}{}{}".format,
    st.lists(ASSIGNMENTS, max_size=2).map(" ".join),
    WRAPPERS,
    SERVERS,
    st.lists(st.tuples(GAPS, WORDS), max_size=5).map(join_words),
    st.sampled_from(
        [
            "",
            "",
            " &",
            " > /dev/null 2>&1",
            " 2>&1 | cat",
            " &> /dev/null",
            " # why",
            " < /dev/null",
            " > >(cat)",
            " 3<&0",
            " || exit 1",
            " <<< x",
            " >/dev/null --seed 9",
            "; :",
        ]
    ),
)
IN_SHELL = st.builds(
    "{} {}bash {} '{}'".format,
    st.lists(ASSIGNMENTS, max_size=1).map(" ".join),
    st.sampled_from(["", "exec ", "env VLLM_X=6 "]),
    st.sampled_from(["-c", "-ec", "-e -c"]),
    st.builds(
        "{}vllm serve M{}".format,
        st.sampled_from(["", "exec ", "VLLM_X=7 ", "export SGLANG_Y=8; ", "set -e\n"]),
        st.sampled_from(["", " --seed 3", " --seed $A", ' --seed "$VLLM_X"', ' --seed "a b"']),
    ),
)
EVALUATED = st.builds(
    "{} eval {}vllm serve M{}{}".format,
    st.lists(ASSIGNMENTS, max_size=1).map(" ".join),
    st.sampled_from(["'", "'VLLM_X=7 ", "'export SGLANG_Y=8; ", "'set -e\n"]),
    st.sampled_from(["", " --seed 3", " --seed $A", ' --seed "$VLLM_X"', ' --seed "a b"']),
    st.sampled_from(["'", "' --port 1", '\' "$1"']),
)
IN_DOCKER = st.builds(
    "{}docker run --rm{} vllm/vllm-openai M{}".format,
    st.sampled_from(["", "VLLM_X=4 ", "exec "]),
    st.lists(
        st.sampled_from(
            [" -e VLLM_X=1", " -e INKLING_Z", " --gpus all", ' -e "VLLM_X=$A"', " -e A=b"]
        ),
        max_size=3,
    ).map("".join),
    st.lists(st.tuples(GAPS, WORDS), max_size=4).map(join_words),
)
IN_PLACE = st.builds(
    str.format,
    st.sampled_from(
        [
            "{}",
            "{}",
            "({}\n)",
            "if true; then\n  {}\nfi",
            "{{ {}\n}}",
            "main() {{\n  {}\n}}\nmain",
            "case a in\n  a)\n    {}\n    ;;\nesac",
            "for i in 1; do\n  {}\ndone",
            "true && {}",
            "(\n  {}\n) &",
            "while :; do\n  {}\n  break\ndone",
            "if :; then {}\nfi",
        ]
    ),
    st.one_of(COMMANDS, COMMANDS, IN_SHELL, EVALUATED, IN_DOCKER),
)
SCRIPTS = st.builds(
    lambda ahead, command, behind: "\n".join(["#!/bin/bash", *ahead, command, *behind]),
    st.lists(SIMPLE, max_size=5),
    IN_PLACE,
    st.lists(SIMPLE, max_size=1),
)


MISTAKES = st.sampled_from(
    [
        "--max-loras 4 --max-cpu-loras 2",
        "--max-lora-rank=24",
        "--enforce-eager=true",
        "--seed 1",
        "--max_lora_rank 24",
        "--max-lora-rank $R",
        '--max-lora-rank "$R"',
        '"${A[@]}"',
        "$T",
        "--fully-sharded-loras",
        "--max-loras 0",
        "--enable-lora=true",
        "--lora-dtype float16",
    ]
)
BROKEN = st.builds(
    "{}\n{}{} vllm serve org/Inkling{} # the end\necho done\n".format,
    st.lists(
        st.sampled_from(
            [
                "R=24",
                "A=(--seed 2 # 2\n  --max-lora-rank 24\n)",
                "T='--seed 4 --max-loras 0'",
                "INKLING_MULTIMEM_AR=1",
                "export INKLING_MULTIMEM_AR=1 VLLM_X=1",
                "set -a",
                'export "INKLING_MULTIMEM_AR=1"',
                "A+=(--max-lora-rank 24)",
                'R="24"',
                "# ours",
                "export INKLING_MULTIMEM_AR",
                "T+=' --max-lora-rank 24'",
                "VLLM_X='a b'",
            ]
        ),
        max_size=4,
    ).map("\n".join),
    st.sampled_from(["", "true && ", "VLLM_X=3 ", "INKLING_MULTIMEM_AR=1 ", "  "]),
    st.sampled_from(["", "", "exec", "env INKLING_MULTIMEM_AR=1", "env -u INKLING_MULTIMEM_AR"]),
    st.lists(st.tuples(GAPS, MISTAKES), max_size=5).map(join_words),
)
