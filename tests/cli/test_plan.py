"""`inkling plan`: what it says beyond the golden files: numbers in JSON, widths, encodings."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from checks.adapter_folders import EXPERTS, HIDDEN, INNER
from inkling_cli.checks.launch.memory_plan import plan_launch
from inkling_cli.checks.launch.read import launches_of, read_source
from inkling_cli.checks.launch.subject import resolve_launch
from inkling_cli.main import main
from inkling_cli.render.bars import ASCII, UNICODE, Blocks, blocks_for
from inkling_cli.render.plan import binary, decimal, render_plan, signed

SMALL = ("--model", "inkling-small", "small.sh")


def plan(*arguments: str) -> int:
    return main(["plan", *arguments])


def planned(capsys, *arguments: str) -> dict:
    code = plan("--output-format", "json", *arguments)
    shown = capsys.readouterr()
    assert code in (0, 1), shown.err
    (launch,) = json.loads(shown.out)["launches"]
    return launch


@pytest.mark.usefixtures("in_workspace")
class TestExitCodes:
    @pytest.mark.parametrize("output_format", ["full", "json"])
    @pytest.mark.parametrize(("gpu", "code"), [("141GiB", 0), ("80GB", 1)])
    def test_what_does_not_fit_is_1(self, gpu, code, output_format):
        assert plan(*SMALL, "--gpu-memory", gpu, "--output-format", output_format) == code

    def test_without_a_gpu_nothing_is_judged(self):
        assert plan(*SMALL) == 0

    def test_errors_leave_stdout_empty(self, capsys):
        assert plan("small.sh", "--output-format", "json") == 2
        assert capsys.readouterr().out == ""


@pytest.mark.usefixtures("in_workspace")
class TestNumbers:
    def test_sums_are_those_of_the_parts(self, capsys):
        found = planned(capsys, *SMALL, "--gpu-memory", "141GiB")
        modules = found["slot"]["modules"]
        keys = ("a_bytes", "b_bytes", "derived_bytes")
        assert sum(part[key] for part in modules for key in keys) == found["slot"]["bytes"]
        assert found["slots_bytes"] == 4 * found["slot"]["bytes"]
        assert sum(part["bytes"] for part in found["base"]["parts"]) == found["base"]["bytes"]
        gpu = found["gpu"]
        total = gpu["reserve_bytes"] + gpu["cache_bytes"] + found["base"]["bytes"]
        assert total + found["slots_bytes"] == gpu["bytes"] == 141 << 30

    def test_host_memory_is_kept_by_every_worker(self, capsys):
        found = planned(capsys, *SMALL)
        assert found["host"]["num_workers"] == 8
        assert found["host"]["bytes_per_worker"] == 8 * found["released_adapter_bytes"]

    def test_adapters_are_measured_where_they_lie(self, capsys):
        found = planned(capsys, "clean.sh", "--lora", "more=adapters/rank32-for-vllm")
        sizes = {adapter["name"]: adapter for adapter in found["adapters"]}
        file = "adapters/rank32-for-vllm/adapter_model.safetensors"
        assert sizes["more"]["disk_bytes"] == Path(file).stat().st_size
        assert sizes["more"]["rank"] == 32
        assert 0 < sizes["math"]["host_bytes"] < sizes["math"]["disk_bytes"]

    def test_experts_dealt_to_ranks_are_kept_by_their_rank_only(self, capsys):
        launch = ("--", "vllm", "serve", "model", "--enable-lora", "-tp", "2")
        adapter = ("--lora", "a=adapters/one-by-one")
        whole, own = (
            planned(capsys, *adapter, *launch, *words)["adapters"][0]["host_bytes"]
            for words in ((), ("--enable-expert-parallel",))
        )
        routed = 2 * 2 * EXPERTS * 3 * 2 * (HIDDEN + INNER)
        assert whole - own == routed // 2

    def test_rank_limit_of_the_adapters_is_a_choice(self, capsys):
        choices = planned(capsys, "clean.sh")["choices"]
        assert choices[0]["change"] == "--max-lora-rank 8"
        assert 2 * choices[0]["slots_bytes"] == planned(capsys, "clean.sh")["slots_bytes"]

    def test_adapters_that_are_elsewhere_give_no_limit(self, capsys):
        found = planned(capsys, *SMALL, "--lora", "a=adapters/released")
        assert found["choices"][0]["change"] == "--max-lora-rank 8"
        words = ("--", "vllm", "serve", "model", "--enable-lora", "--lora-modules", "a=org/a")
        choices = planned(capsys, *words)["choices"]
        assert not any(choice["change"].startswith("--max-lora-rank") for choice in choices)

    @pytest.mark.parametrize(
        ("words", "key", "value"),
        [
            ("-tp 4 -dp 2", "parallel", [4, 4, 1, 8, 1]),
            ("-tp 4 -dp 2 -ep", "parallel", [4, 4, 8, 1, 1]),
            ("-tp 2 -pp 2", "parallel", [2, 2, 1, 2, 2]),
            ("-tp 0", "parallel", [1, 1, 1, 1, 1]),
            ("--max-model-len 32k", "context", 32_000),
            ("--max-model-len 32K", "context", 32_768),
            ("--max-model-len 8192", "context", 8192),
            ("--max-model-len auto", "context", 1_048_576),
            ("--quantization modelopt_fp4", "weights", "nvfp4"),
            ("--max-cpu-loras 5", "host_adapters", 5),
            ("--max-loras 3", "host_adapters", 3),
            ("--max-loras 99999999999999999999", "num_slots", 1),
            ("--fully-sharded-loras", "is_fully_sharded", True),
            ("--enable-moe-shared-loras", "is_shared_outer", True),
            ("--lora-target-modules qkvr w2", "targets", ["qkvr", "w2"]),
        ],
    )
    def test_vllm_options_are_read(self, words, key, value, capsys):
        launch = ("vllm", "serve", "org/Inkling", "--enable-lora", *words.split())
        setup = planned(capsys, "--model", "inkling-small", "--", *launch)["setup"]
        found = list(setup[key].values()) if key == "parallel" else setup[key]
        assert found == value

    @pytest.mark.parametrize(
        ("words", "key", "value"),
        [
            ("--tp-size 8 --ep-size 4", "parallel", [8, 8, 4, 2, 1]),
            ("--tp-size 8 --dp-size 8 --enable-dp-attention", "parallel", [8, 1, 1, 8, 1]),
            ("--tp-size 8 --attn-dp-size 2", "parallel", [8, 4, 1, 8, 1]),
            ("--tp-size 8 --ep-size 2 --moe-dp-size 2", "parallel", [8, 8, 2, 2, 1]),
            ("--context-length 4096", "context", 4096),
            ("--max-lora-rank 7", "max_lora_rank", 7),
            ("--lora-paths a=adapters/rank32 b=adapters/released", "max_lora_rank", 32),
            ("--lora-paths a=adapters/stacks", "is_shared_outer", False),
            ("--lora-paths a=adapters/released", "is_shared_outer", True),
            ("--lora-paths a=org/a", "is_shared_outer", True),
            ("--max-lora-rank 4", "is_shared_outer", False),
            ("--max-loaded-loras 9", "host_adapters", 9),
            ("--lora-target-modules q_proj qkvr wo_ud", "targets", None),
            ("--lora-target-modules qkvr wo_ud", "targets", ["qkvr", "wo_ud"]),
        ],
    )
    def test_sglang_options_are_read(self, words, key, value, capsys):
        launch = ("sglang", "serve", "--model-path", "m", "--enable-lora", *words.split())
        setup = planned(capsys, "--model", "model", "--", *launch)["setup"]
        found = list(setup[key].values()) if key == "parallel" else setup[key]
        everything = ["qkvr", "wo_ud", "gate_up_proj", "down_proj", "embed_tokens", "lm_head"]
        assert found == (everything if key == "targets" and value is None else value)

    def test_quantised_weights_are_seen_in_the_config(self, capsys, tmp_path):
        config = json.loads(Path("model/config.json").read_text())
        config["quantization_config"] = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
        (tmp_path / "config.json").write_text(json.dumps(config))
        launch = ("--", "vllm", "serve", str(tmp_path), "--enable-lora")
        assert planned(capsys, *launch)["setup"]["weights"] == "nvfp4"

    def test_every_launch_of_a_file_is_planned(self, capsys, tmp_path):
        script = tmp_path / "both.sh"
        script.write_text("vllm serve model &\nsglang serve --model-path model &\n")
        assert plan(str(script), "--output-format", "json") == 0
        launches = json.loads(capsys.readouterr().out)["launches"]
        assert [launch["engine"] for launch in launches] == ["vllm", "sglang"]
        assert all(launch["slots_bytes"] == 0 for launch in launches)
        assert plan(str(script)) == 0
        assert capsys.readouterr().out.count("launch  ") == 2


@pytest.mark.usefixtures("in_workspace")
class TestPicture:
    def test_a_narrow_terminal_gets_sums_without_bars(self):
        (launch,) = launches_of(read_source(["small.sh"]))
        subject = resolve_launch(launch, model="inkling-small")
        found, assumed = plan_launch(subject, 141 << 30)
        shown = render_plan(subject, found, assumed, UNICODE, 50).plain
        table = shown.partition("one adapter slot")[2].partition("each rank, a GPU")[0]
        assert "█" not in table
        assert max(map(len, table.splitlines())) <= 50
        (bar,) = (line for line in shown.splitlines() if line and set(line) <= set("█▓▒░"))
        assert len(bar) == 48

    @pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
    def test_an_output_without_blocks_gets_ascii(self, encoding, in_workspace):
        code = "import sys; from inkling_cli.main import main; sys.exit(main())"
        words = [sys.executable, "-c", code, "plan", *SMALL, "--gpu-memory", "141GiB"]
        environment = {**os.environ, "PYTHONIOENCODING": encoding, "COLUMNS": "80"}
        done = subprocess.run(words, capture_output=True, env=environment, check=True)
        shown = done.stdout.decode("ascii")
        assert "###" in shown
        assert "\\u" not in shown

    def test_blocks_are_chosen_by_encoding(self):
        assert blocks_for("utf-8") is UNICODE
        assert [blocks_for(name) for name in ("ascii", None, "no-such")] == [ASCII] * 3

    @pytest.mark.parametrize("blocks", [UNICODE, ASCII], ids=["unicode", "ascii"])
    def test_bars_are_as_long_as_their_share(self, blocks: Blocks):
        assert blocks.bar(0, 10) == ""
        assert blocks.bar(1, 10) == blocks.steps[-1] * 10
        assert len(blocks.bar(0.5, 10)) == 5
        assert blocks.bar(1e-9, 10) == blocks.steps[0]

    def test_stacked_bars_show_every_part_and_fill_the_width(self):
        assert "".join(UNICODE.stacked([50, 25, 25, 0], 8)) == "████▓▓▒▒"
        assert "".join(ASCII.stacked([10**12, 1, 1, 1], 10)) == "#######=-."
        assert [len(cells) for cells in UNICODE.stacked([1, 1, 1], 10)] == [4, 3, 3]
        assert UNICODE.stacked([0, 0], 10) == ["", ""]

    def test_sizes_have_three_digits(self):
        sizes = (0, 999, 1024, 10 * 1024, 1000 * 1024, 1 << 30, 141 << 30, 3 << 50)
        assert [binary(size) for size in sizes] == [
            "0 B",
            "999 B",
            "1.00 KiB",
            "10.0 KiB",
            "0.98 MiB",
            "1.00 GiB",
            "141 GiB",
            "3,072 TiB",
        ]
        assert [decimal(size) for size in (999, 4_230_000_000, 20_267_180_032)] == [
            "999 B",
            "4.23 GB",
            "20.3 GB",
        ]
        assert [signed(size) for size in (0, -1024, 1 << 20)] == ["-", "-1.00 KiB", "+1.00 MiB"]
