"""`inkling generate` on the demo model, as its user runs it."""

import json
import shutil
import signal
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from inkling_cli.generation.asked import Prompt, Run, plan_adapter
from inkling_cli.generation.run import load_model, make_requests, make_sampling, run_prompts
from inkling_cli.main import main
from inkling_runtime.adapter.model_spec import read_model_spec
from inkling_runtime.adapter.sites import SiteKind

DEMO = Path(str(files("inkling_cli") / "demo_data"))
MODEL, ADAPTERS = DEMO / "model", DEMO / "adapters"
BASE, DOWN, TWOS = "6 7 8 9 10 11 12 13", "4 3 2 1 0 99 98 97", "7 9 11 13 15 17 19 21"


@pytest.fixture
def run(capsys):
    """Run `inkling generate` on the demo model; return exit code, stdout, stderr."""

    def run_(*words, model=MODEL):
        code = main(["generate", str(model), "--max-tokens", "8", *map(str, words)])
        shown = capsys.readouterr()
        return int(code), shown.out, shown.err

    return run_


@pytest.fixture
def edited(tmp_path):
    """Return a function that writes count-down with a change to its tensors or config."""

    def edit(change=None, **config):
        folder = tmp_path / "edited"
        folder.mkdir()
        tensors = load_file(ADAPTERS / "count-down" / "adapter_model.safetensors")
        if change is not None:
            change(tensors)
        save_file(tensors, folder / "adapter_model.safetensors")
        values = json.loads((ADAPTERS / "count-down" / "adapter_config.json").read_text())
        (folder / "adapter_config.json").write_text(json.dumps(values | config))
        return folder

    return edit


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_base_and_adapters_say_what_they_were_trained_to(run, dtype):
    assert run("--prompt", "3 4 5", "--dtype", dtype) == (0, f"{BASE}\n", "")
    down = ("--lora", ADAPTERS / "count-down", "--prompt", "3 4 5", "--dtype", dtype)
    assert run(*down) == (0, f"{DOWN}\n", "")
    twos = ("--lora", ADAPTERS / "by-twos", "--prompt", "3 4 5", "--dtype", dtype)
    assert run(*twos) == (0, f"{TWOS}\n", "")


@pytest.mark.parametrize("dialect", ["vllm", "sglang", "peft", "tinker"])
def test_a_converted_adapter_says_the_same(run, tmp_path, capsys, dialect):
    words = ["convert-adapter", str(ADAPTERS / "count-down"), "--to", dialect]
    assert main([*words, "--model", str(MODEL), "-o", str(tmp_path / "out")]) == 0
    capsys.readouterr()
    assert run("--lora", tmp_path / "out", "--prompt", "3 4 5")[1] == f"{DOWN}\n"


def test_factors_that_a_dialect_repeats_for_every_expert_are_loaded_once(tmp_path, capsys):
    words = ["convert-adapter", str(ADAPTERS / "count-down"), "--to", "peft"]
    assert main([*words, "--model", str(MODEL), "-o", str(tmp_path / "out")]) == 0
    spec = read_model_spec(MODEL)
    plan = plan_adapter("down", tmp_path / "out", spec, None, False)
    text_llm = load_model(MODEL, [plan], "auto", print, {"device": "cpu"})
    gates = [site for site in plan.applied if site.kind is SiteKind.ROUTED_GATE]
    assert gates
    for site in gates:
        pair = text_llm.llm._executor.adapters.layers[site.layer][site.kind][0]
        assert plan.applied[site].a.shape[0] > 1
        assert len(pair.a) == 1


def test_several_adapters_run_in_one_batch(run):
    loras = ["--lora", ADAPTERS / "count-down", "--lora", f"two={ADAPTERS / 'by-twos'}"]
    choice = ["--adapter", "two", "--adapter", "base", "--adapter", "count-down"]
    prompts = ["--prompt", "3 4 5", "--prompt", "3 4 5", "--prompt-ids", "3,4,5"]
    code, out, _ = run(*loras, *choice, *prompts)
    assert code == 0
    assert out == f"[two] 3 4 5\n{TWOS}\n\n[base] 3 4 5\n{BASE}\n\n[count-down] 3,4,5\n{DOWN}\n"


def test_faults_fall_back_to_the_base_model(run, edited):
    def without_shared_experts(tensors):
        for name in [name for name in tensors if "shared_experts" in name]:
            del tensors[name]

    assert run("--lora", edited(without_shared_experts), "--prompt", "3 4 5")[1] == f"{BASE}\n"


def test_a_wrong_scale_falls_back_to_the_base_model(run, edited):
    assert run("--lora", edited(lora_alpha=4), "--prompt", "3 4 5")[1] == f"{BASE}\n"


def test_the_reading_of_vllm_falls_back_to_the_base_model(run):
    words = ("--lora", ADAPTERS / "count-down", "--from", "vllm", "--prompt", "3 4 5")
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert "a part of" in err
    code, out, err = run(*words, "--allow-partial")
    assert (code, out) == (0, f"{BASE}\n")
    assert err.startswith("warning: not all of `count-down` is applied")


def test_compare_shows_an_effect(run):
    code, out, _ = run("--lora", ADAPTERS / "by-twos", "--prompt", "3 4 5", "--compare")
    assert code == 0
    assert f"base      {BASE}\nby-twos   {TWOS}\n" in out
    assert "the adapter takes effect; the first differing token is number 1" in out


def test_compare_tells_an_adapter_without_effect(run, edited):
    def zero(tensors):
        for name, tensor in tensors.items():
            if "lora_B" in name:
                tensor.zero_()

    words = ("--lora", edited(zero), "--prompt", "3 4 5", "--compare")
    code, out, _ = run(*words)
    assert code == 1
    assert "the adapter has no effect" in out
    code, out, _ = run(*words, "--output-format", "json")
    (comparison,) = json.loads(out)["comparisons"]
    assert code == 1
    assert comparison["mean_prompt_delta"] == 0
    assert comparison["takes_effect"] is False


def test_json_holds_the_whole_completion(run):
    code, out, err = run("--prompt", "3 4 5", "--output-format", "json")
    assert (code, err) == (0, "")
    answer = json.loads(out)
    assert (answer["version"], answer["command"]) == (1, "generate")
    (completion,) = answer["completions"]
    assert completion["prompt_ids"] == [3, 4, 5]
    assert completion["token_ids"] == [6, 7, 8, 9, 10, 11, 12, 13]
    assert completion["text"] == BASE
    assert completion["finish_reason"] == "length"
    assert max(completion["logprobs"]) <= 0


def test_json_tells_what_else_was_probable_and_what_the_prompt_was(run):
    words = ("--prompt", "3 4 5", "--output-format", "json")
    (plain,) = json.loads(run(*words)[1])["completions"]
    (asked,) = json.loads(run(*words, "--top-logprobs", "2", "--prompt-logprobs")[1])["completions"]
    assert plain["top_logprobs"] is plain["prompt_logprobs"] is None
    assert asked["logprobs"] == plain["logprobs"]
    assert [len(top) for top in asked["top_logprobs"]] == [2] * 8
    assert [top[0] for top in asked["top_logprobs"]] == [
        list(one) for one in zip(plain["token_ids"], plain["logprobs"], strict=True)
    ]
    assert len(asked["prompt_logprobs"]) == 2
    scored = run(*words, "--prompt-logprobs", "--max-tokens", "0")[1]
    (alone,) = json.loads(scored)["completions"]
    assert (alone["token_ids"], alone["prompt_logprobs"]) == ([], asked["prompt_logprobs"])


def test_an_error_of_one_prompt_names_it_and_the_others_are_run(run):
    long = " ".join(["3"] * 600)
    code, out, err = run("--prompt", long, "--prompt", "3 4 5")
    assert code == 2
    assert f"[base] 3 4 5\n{BASE}\n" in out
    assert err.startswith("error: [base] 3 3 3")
    assert "…: the prompt has 600 tokens, the model reads at most 512" in err
    assert len(err) < 200


def test_a_stop_id_ends_the_text_and_is_not_shown(run):
    assert run("--prompt", "3 4 5", "--stop-id", "9")[1] == "6 7 8\n"


def test_sampling_with_a_seed_repeats(run):
    words = ("--prompt", "3 4 5", "--temperature", "30", "--seed", "1")
    first, again = run(*words)[1], run(*words)[1]
    assert first == again != f"{BASE}\n"
    assert run("--prompt", "3 4 5", "--temperature", "30", "--top-k", "1")[1] == f"{BASE}\n"


def test_token_ids_go_in_and_come_out(run, tmp_path):
    shutil.copytree(MODEL, tmp_path / "m", ignore=shutil.ignore_patterns("tokenizer.json"))
    assert run("--prompt-ids", "3 4 5", model=tmp_path / "m")[1] == f"{BASE}\n"
    code, _, err = run("--prompt", "3 4 5", model=tmp_path / "m")
    assert code == 2
    assert "as token ids (`--prompt-ids`)" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--chat", "hi"], "does not have Inkling's vocabulary"),
        (["--prompt-ids", "107,108"], "has the token id 108, expected 0 to 107"),
        (["--prompt", ""], "is empty, expected at least one token"),
        (["--prompt", "3", "--temperature", "-1"], "temperature is -1.0"),
        (["--prompt", "3", "--top-p", "0"], "top_p is 0.0"),
        (["--prompt", "3", "--max-tokens", "9999"], "the model reads at most 512"),
        (["--prompt", "3", "--device", "tpu"], "tpu"),
        (["--prompt", "3", "--dtype", "int8"], "int8"),
        (["--prompt", "3", "--compare"], "`--compare` needs an adapter"),
        (["--prompt", "3", "--lora", "nowhere"], "`nowhere` does not exist"),
        (["--prompt", "3", "--adapter", "x"], "`--adapter x` is not loaded"),
        (["--prompt", "3", "--effort", "mad"], "the effort is `mad`"),
        (["--prompt", "3 \udcff"], "has no character at place 2"),
    ],
)
def test_what_cannot_be_done_is_said(run, words, message):
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert message in err


def test_ctrl_c_ends_it_with_130():
    program = (
        "import signal, sys; from inkling_cli.main import main;"
        "signal.signal(signal.SIGINT, signal.default_int_handler);"  # a runner may ignore it
        "sys.exit(main(sys.argv[1:]))"
    )
    words = ["generate", str(MODEL), "--prompt", "3 4 5", "--max-tokens", "500"]
    with subprocess.Popen(
        [sys.executable, "-c", program, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout.read(3) == b"6 7"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == b""


def test_ctrl_c_while_torch_is_imported_is_not_lost():
    # Torch imports numpy in C and clears whatever is raised within.
    program = """
import os, signal, sys
from inkling_cli.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)
imports = []
def hook(event, arguments):
    if event == "import":
        imports.append(arguments[0])
        if "numpy" in imports and len(imports) == imports.index("numpy") + 12:
            os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(hook)
sys.exit(main(sys.argv[1:]))
"""
    words = ["generate", str(MODEL), "--prompt", "3 4 5", "--max-tokens", "2"]
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_tokens_are_written_as_they_are_made():
    text_llm = load_model(MODEL, [], "auto", print, {"device": "cpu", "dtype": "float32"})
    runs = [Run(Prompt("3 4 5", text="3 4 5"), None)]
    sampling = make_sampling(max_tokens=8, temperature=0)
    requests = make_requests(text_llm, runs, sampling, "high")
    written = []
    run_prompts(text_llm, runs, requests, written.append)
    assert [text for text in written if text] == [
        "6",
        " 7",
        " 8",
        " 9",
        " 10",
        " 11",
        " 12",
        " 13",
        "\n",
    ]
