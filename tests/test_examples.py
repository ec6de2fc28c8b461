"""Every example runs, as it says."""

import json
import os
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest
import yaml

from inkling_runtime.adapter.safetensors_file import read_header

EXAMPLES = Path(__file__).parents[1] / "examples"
DEMO = Path(str(files("inkling_cli") / "demo_data"))


def run(*words, cwd=None):
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def test_the_walk_through_ends_well(tmp_path):
    done = run("bash", EXAMPLES / "walkthrough.sh", tmp_path / "demo")
    assert done.returncode == 0, done.stderr
    assert "the adapter takes effect" in done.stdout


def test_generate_in_python(tmp_path):
    folders = [DEMO / "adapters" / name for name in ("count-down", "by-twos")]
    done = run(
        sys.executable, EXAMPLES / "generate_in_python.py", DEMO / "model", "3 4 5", *folders
    )
    assert done.stdout.splitlines() == [
        "base: 6 7 8 9 10 11 12 13",
        "count-down: 4 3 2 1 0 99 98 97",
        "by-twos: 7 9 11 13 15 17 19 21",
    ]


def test_the_code_of_the_runtime_guide_runs(tmp_path):
    guide = (EXAMPLES.parent / "docs" / "runtime.md").read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    assert len(blocks) == 2
    (tmp_path / "guide.py").write_text("".join(blocks))
    done = run(sys.executable, tmp_path / "guide.py", cwd=DEMO)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_convert_in_python(tmp_path):
    words = [sys.executable, EXAMPLES / "convert_in_python.py", DEMO / "adapters" / "count-down"]
    done = run(*words, tmp_path / "out")
    assert done.stdout.startswith("tinker → vllm: 82 tensors, 56,160 bytes\n")
    assert (tmp_path / "out" / "adapter_model.safetensors").exists()
    again = run(*words, tmp_path / "out")
    assert again.returncode == 1
    assert "exists" in again.stderr


def test_the_workflow_annotates_and_writes_sarif(tmp_path):
    workflow = yaml.safe_load((EXAMPLES / "github-actions.yml").read_text("utf-8"))
    (tmp_path / "serving" / "notes").mkdir(parents=True)
    (tmp_path / "serving" / "notes" / "how to.md").write_text("Start it.\n")
    (tmp_path / "serving" / "deploy.yaml").write_text("kind: Namespace\napiVersion: v1\n")
    launch = tmp_path / "serving" / "serve.sh"
    launch.write_text("vllm serve org/Inkling --enable-lora --max-loras 0\n")
    run("git", "init", "--quiet", cwd=tmp_path)
    run("git", "add", ".", cwd=tmp_path)
    (job,) = workflow["jobs"].values()
    steps = [step["run"] for step in job["steps"] if "inkling check-config" in step.get("run", "")]
    assert len(steps) == 2

    def run_step(step):
        variables = [f"{name}={value}" for name, value in workflow["env"].items()]
        return run("env", *variables, "bash", "-e", "-o", "pipefail", "-c", step, cwd=tmp_path)

    write_sarif, annotate = steps
    done = run_step(write_sarif)
    assert (done.returncode, done.stderr) == (0, "")
    (upload,) = [step for step in job["steps"] if "upload-sarif" in step.get("uses", "")]
    log = json.loads((tmp_path / upload["with"]["sarif_file"]).read_text("utf-8"))
    assert "VLM101" in [result["ruleId"] for result in log["runs"][0]["results"]]
    done = run_step(annotate)
    assert done.returncode == 123, "what xargs says of a command that ended with 1"
    assert "::error file=serving/serve.sh,line=1,title=VLM101 " in done.stdout
    launch.write_text("INKLING_MULTIMEM_AR=0 vllm serve org/Inkling --enable-lora\n")
    done = run_step(annotate)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_example_is_tested():
    text = Path(__file__).read_text()
    assert [path.name for path in EXAMPLES.iterdir() if path.name not in text] == []


@pytest.mark.slow
def test_train_demo_makes_what_the_package_holds(tmp_path):
    done = run(sys.executable, EXAMPLES / "train_demo.py", tmp_path / "out", "--rehearse")
    assert done.returncode == 0, done.stderr
    made = sorted(path for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert len(made) == 7
    for path in made:
        shipped = DEMO / path.relative_to(tmp_path / "out")
        if path.suffix == ".json":
            assert path.read_text() == shipped.read_text()
        else:
            assert shapes(path) == shapes(shipped)


def shapes(path):
    return {name: (t.dtype, t.shape) for name, t in read_header(path).tensors.items()}
