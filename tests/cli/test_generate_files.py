"""`inkling generate --prompts`: a file of prompts in, a file of results out."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from importlib.resources import files
from pathlib import Path

import pytest

from inkling_cli.main import main

DEMO = Path(str(files("inkling_cli") / "demo_data"))
MODEL, DOWN, TWOS = (DEMO / name for name in ("model", "adapters/count-down", "adapters/by-twos"))
LINES = (
    {"id": "first", "prompt": "3 4 5", "adapter": "base"},
    {"prompt": "3 4 5", "adapter": "count-down", "max_tokens": 4},
    {"id": "third", "prompt_ids": [3, 4, 5], "adapter": "by-twos", "stop_ids": [13]},
    {"id": "fourth", "prompt": "3 4 5", "adapter": "base", "stop": "9"},
)
TEXTS = {
    "first": "6 7 8 9 10 11 12 13",
    2: "4 3 2 1",
    "third": "7 9 11",
    "fourth": "6 7 8 ",
}


@pytest.fixture
def run(capsys, tmp_path):
    """Run a file of prompts; return exit code, stdout, stderr."""

    def run_(*lines, words=(), loras=(DOWN, TWOS), results="out.jsonl"):
        path = tmp_path / "in.jsonl"
        path.write_text("".join(line if isinstance(line, str) else as_line(line) for line in lines))
        adapters = [word for lora in loras for word in ("--lora", str(lora))]
        where = ["--prompts", str(path), "--results", str(tmp_path / results)]
        code = main(["generate", str(MODEL), "--max-tokens", "8", *adapters, *where, *words])
        shown = capsys.readouterr()
        return int(code), shown.out, shown.err

    return run_


def as_line(fields):
    return json.dumps(fields) + "\n"


def read(path):
    return {one["id"]: one for one in map(json.loads, path.read_text().split("\n")[:-1])}


def test_every_line_gets_a_result_by_its_own_adapter_and_sampling(run, tmp_path):
    code, out, err = run(*LINES)
    assert (code, err) == (0, "")
    assert "4 prompts done" in out
    results = read(tmp_path / "out.jsonl")
    assert {name: result["text"] for name, result in results.items()} == TEXTS
    assert [results[name]["finish_reason"] for name in TEXTS] == ["length"] * 2 + ["stop"] * 2
    assert results["first"]["adapter"] is None
    assert results[2]["adapter"] == "count-down"
    assert len(results["first"]["logprobs"]) == 8


def test_results_are_those_of_each_prompt_alone(run, tmp_path, capsys):
    lines = [
        {"id": i, "prompt": f"{i} {i + 1}", "temperature": 1.0, "seed": i, "adapter": adapter}
        for i, adapter in enumerate(["base", "count-down", "by-twos"] * 3)
    ]
    assert run(*lines, results="together.jsonl")[0] == 0
    for i in (0, 4, 8):
        assert run(lines[i], results=f"{i}.jsonl")[0] == 0
        alone = read(tmp_path / f"{i}.jsonl")[i]
        assert read(tmp_path / "together.jsonl")[i]["token_ids"] == alone["token_ids"]


def test_going_on_does_what_is_left_and_keeps_what_is_done(run, tmp_path):
    assert run(*LINES)[0] == 0
    path = tmp_path / "out.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:2]) + lines[2][:25])
    code, out, _ = run(*LINES, words=["--resume"])
    assert code == 0
    assert "2 prompts done, 2 done before" in out
    assert path.read_text().splitlines(keepends=True)[:2] == lines[:2]
    assert {name: result["text"] for name, result in read(path).items()} == TEXTS
    code, out, _ = run(*LINES, words=["--resume"])
    assert "0 prompts done, 4 done before" in out


def test_a_request_that_cannot_be_done_is_told_and_done_again_later(run, tmp_path):
    long = {"id": "long", "prompt": "3 4 5", "max_tokens": 10**6}
    code, out, _ = run(long, *LINES[:1], loras=[])
    assert code == 1
    assert "1 prompt done, 1 could not be done" in out
    results = read(tmp_path / "out.jsonl")
    assert results["long"]["finish_reason"] == "error"
    assert "the model reads at most" in results["long"]["error"]
    assert results["first"]["text"] == TEXTS["first"]
    code, out, _ = run(long, *LINES[:1], loras=[], words=["--resume"])
    assert code == 1
    assert "0 prompts done, 1 could not be done" in out
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 2


def test_going_on_with_another_request_under_the_same_id_is_refused(run, tmp_path):
    assert run(*LINES)[0] == 0
    before = (tmp_path / "out.jsonl").read_bytes()
    code, _, err = run({**LINES[0], "prompt": "4 5 6"}, words=["--resume"])
    assert code == 2
    assert "another prompt, adapter or sampling" in err
    assert (tmp_path / "out.jsonl").read_bytes() == before


def test_existing_results_are_kept_unless_they_are_to_be_replaced(run, tmp_path):
    assert run(*LINES)[0] == 0
    before = (tmp_path / "out.jsonl").read_bytes()
    code, _, err = run(*LINES)
    assert code == 2
    assert "--resume" in err
    assert (tmp_path / "out.jsonl").read_bytes() == before
    assert run(LINES[0], words=["--overwrite"])[0] == 0
    assert list(read(tmp_path / "out.jsonl")) == ["first"]


def test_a_file_that_is_no_results_is_never_changed(run, tmp_path):
    path = tmp_path / "out.jsonl"
    path.write_text("my notes\n")
    code, _, err = run(*LINES, words=["--resume"])
    assert code == 2
    assert "line 1 is not a result" in err
    assert path.read_text() == "my notes\n"


def test_what_is_there_stays_if_the_run_cannot_begin(run, tmp_path):
    assert run(LINES[0])[0] == 0
    before = (tmp_path / "out.jsonl").read_bytes()
    chat = {"messages": [{"role": "user", "content": "3"}], "adapter": "base"}
    for how in ("--overwrite", "--resume"):
        code, _, err = run(LINES[0], chat, words=[how])
        assert code == 2
        assert f"`{tmp_path / 'in.jsonl'}`, line 2: `{MODEL}` does not have" in err
        assert (tmp_path / "out.jsonl").read_bytes() == before


def test_the_prompts_are_never_overwritten_by_their_results(run, tmp_path):
    for how in ("--overwrite", "--resume"):
        code, _, err = run(LINES[0], words=[how], results="in.jsonl")
        assert code == 2
        assert "are the same file" in err
        assert (tmp_path / "in.jsonl").read_text() == as_line(LINES[0])


def test_results_go_to_a_regular_file_in_a_folder_that_is_there(run, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for results, message in {
        "no/out.jsonl": f"the folder `{tmp_path / 'no'}` of `out.jsonl` does not exist",
        "pipe": "is not a regular file",
        ".": "is not a regular file",
    }.items():
        code, out, err = run(LINES[0], words=["--overwrite"], results=results)
        assert (code, out) == (2, "")
        assert message in err


def test_a_character_that_was_torn_is_dropped_with_its_line(run, tmp_path):
    lines = [LINES[0], {**LINES[0], "id": "zwölf"}]
    assert run(*lines)[0] == 0
    path = tmp_path / "out.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.index("ö".encode()) + 1])
    assert run(*lines, words=["--resume"])[0] == 0
    assert path.read_bytes() == whole


def test_a_folder_that_takes_no_new_file_is_told_and_results_stay(run, tmp_path):
    assert run(LINES[0])[0] == 0
    path = tmp_path / "out.jsonl"
    torn = path.read_bytes() + b'{"id": "sec'
    path.write_bytes(torn)
    (tmp_path / ".out.jsonl.new").mkdir()
    code, _, err = run(LINES[0], words=["--resume"])
    assert code == 2
    assert f"`{path}` cannot be written" in err
    assert path.read_bytes() == torn


def test_a_torn_line_goes_even_if_nothing_is_left_to_do(run, tmp_path):
    assert run(LINES[0])[0] == 0
    path = tmp_path / "out.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"id": "sec')
    assert run(LINES[0], words=["--resume"])[0] == 0
    assert path.read_bytes() == whole


def test_strange_characters_come_back_as_they_were(run, tmp_path):
    labels = ["3\u2028 4", "\ud800"]
    assert run({"id": 1, "prompt": labels[0]}, {"id": labels[1], "prompt": "3"}, loras=())[0] == 0
    results = read(tmp_path / "out.jsonl")
    assert {results[1]["prompt"], results["\ud800"]["id"]} == set(labels)
    lines = {"id": 1, "prompt": labels[0]}, {"id": labels[1], "prompt": "3"}
    code, out, _ = run(*lines, loras=(), words=["--resume"])
    assert "0 prompts done, 2 done before" in out
    code, _, err = run({"prompt": labels[1]}, loras=(), results="other.jsonl")
    assert code == 2
    assert "line 1: the text has no character at place 0" in err


def test_log_probabilities_are_told_to_those_who_ask(run, tmp_path):
    asked = {"id": "asked", "prompt_logprobs": True, "top_logprobs": 3}
    assert run({**LINES[0], **asked}, LINES[1])[0] == 0
    results = read(tmp_path / "out.jsonl")
    assert len(results["asked"]["prompt_logprobs"]) == 2
    assert [len(top) for top in results["asked"]["top_logprobs"]] == [3] * 8
    assert results[2]["prompt_logprobs"] is results[2]["top_logprobs"] is None


def test_two_runs_do_not_write_to_one_file(run, tmp_path):
    with (tmp_path / "out.jsonl").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        code, _, err = run(*LINES, words=["--resume"])
    assert code == 2
    assert "another run writes" in err


BROKEN = {
    "not JSON": ("{", "it is not JSON"),
    "no object": ("[1]", "not a JSON object"),
    "unknown field": ({"prompt": "3", "tempreature": 1}, "unknown field `tempreature`"),
    "no prompt": ({"id": 1}, "none of `prompt`"),
    "two prompts": ({"prompt": "3", "prompt_ids": [3]}, "`prompt` and `prompt_ids`"),
    "wrong type": ({"prompt": "3", "max_tokens": "8"}, '`max_tokens` is "8"'),
    "a number is no flag": ({"prompt": "3", "prompt_logprobs": 1}, "expected true or false"),
    "true is no number": ({"prompt": "3", "seed": True}, "`seed` is true"),
    "wrong items": ({"prompt_ids": [3, "4"]}, '`prompt_ids` holds "4"'),
    "unknown adapter": ({"prompt": "3", "adapter": "up"}, "the adapter `up` is not loaded"),
    "no adapter": ({"prompt": "3"}, "names no adapter, and 2 are loaded"),
    "out of range": ({"prompt": "3", "adapter": "base", "top_p": 2}, "top_p is 2"),
}


@pytest.mark.parametrize(("line", "message"), BROKEN.values(), ids=BROKEN)
def test_a_wrong_line_is_told_with_its_number_and_nothing_is_run(run, tmp_path, line, message):
    line = line + "\n" if isinstance(line, str) else line
    code, out, err = run(LINES[0], "\n", line)
    assert (code, out) == (2, "")
    assert message in err
    assert "line 3" in err
    assert not (tmp_path / "out.jsonl").exists()


def test_an_id_that_comes_twice_is_refused(run):
    code, _, err = run(LINES[0], LINES[0])
    assert code == 2
    assert "line 2: the id `first` is that of line 1" in err


@pytest.mark.parametrize(
    "words", [["--prompt", "3"], ["--compare"], ["--resume", "--overwrite"]], ids=str
)
def test_options_that_contradict_are_refused(run, words):
    assert run(LINES[0], words=words)[0] == 2


def test_results_need_prompts(capsys):
    words = ["generate", str(MODEL), "--prompt", "3", "--results", "x.jsonl"]
    assert main(words) == 2
    assert "--prompts" in capsys.readouterr().err


def test_json_output_is_one_object_with_the_tally(run, tmp_path):
    code, out, _ = run(*LINES, words=["--output-format", "json"])
    answer = json.loads(out)
    assert code == 0
    assert answer["version"] == 1
    assert answer["done"] == answer["total"] == 4
    assert answer["failed"] == answer["skipped"] == 0
    assert answer["results"] == str(tmp_path / "out.jsonl")


def test_ctrl_c_keeps_what_is_done_and_says_how_to_go_on(tmp_path):
    prompts, results = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines = [{"prompt": "3 4 5", "max_tokens": 1}, {"prompt": "3 4 5", "max_tokens": 500}]
    prompts.write_text("".join(map(as_line, [*lines, *[lines[1]] * 40])))
    words = ["generate", str(MODEL), "--prompts", str(prompts), "--results", str(results)]
    program = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from inkling_cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, *words, "--max-sequences", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    deadline = time.monotonic() + 120
    while not (results.exists() and results.read_text()) and time.monotonic() < deadline:
        assert child.poll() is None, child.stderr.read()
        os.sched_yield()
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=120)
    assert (child.returncode, out) == (130, "")
    assert "--resume" in err
    assert "Traceback" not in err
    assert len(read(results)) >= 1
