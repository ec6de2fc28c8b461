"""The pre-commit hooks: what they select, and what they say when called as pre-commit calls them.

pre-commit makes one command of `entry`, `args` and the names of the files that are committed and
match `files`, and runs it at the top of the repository.
"""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
HOOKS = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
DEMO = Path(str(files("inkling_cli") / "demo_data"))
BROKEN = "vllm serve org/Inkling --enable-lora --max-loras 0\n"
CLEAN = "INKLING_MULTIMEM_AR=0 vllm serve org/Inkling --enable-lora\n"


def commit(hook_id: str, folder: Path, *arguments: str):
    """Run a hook on all files of a folder that it selects; return None if there are none."""
    hook = HOOKS[hook_id]
    names = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    names = [name for name in names if re.search(hook["files"], name)]
    if not names:
        return None
    program, *words = shlex.split(hook["entry"])
    command = [Path(sys.executable).parent / program, *words, *(arguments or hook.get("args", []))]
    return subprocess.run(
        [*command, *names], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("hook", HOOKS.values(), ids=HOOKS)
def test_hook_is_whole(hook):
    assert {"id", "name", "description", "entry", "language", "files"} <= set(hook)
    assert hook["language"] == "python"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert shlex.split(hook["entry"])[0] in project["scripts"]


@pytest.mark.parametrize(
    "name",
    [
        "serve.sh",
        "ops/start.bash",
        "docker-compose.yml",
        "deploy/compose.prod.yaml",
        "k8s/inkling-statefulset.yaml",
        "configs/vllm.yaml",
        "sglang-8gpu.json",
        "vllm.env",
        "launch.yaml",
    ],
)
def test_launches_are_selected(name):
    assert re.search(HOOKS["inkling-check-config"]["files"], name)


@pytest.mark.parametrize(
    "name", ["README.md", "package.json", ".vscode/launch.json", "vllm/notes.txt", "observe.yaml"]
)
def test_other_files_are_not_selected(name):
    assert not re.search(HOOKS["inkling-check-config"]["files"], name)


class TestCheckConfig:
    def test_a_broken_launch_stops_the_commit(self, tmp_path):
        (tmp_path / "serve.sh").write_text(BROKEN)
        (tmp_path / "install.sh").write_text("apt-get install vim\n")
        done = commit("inkling-check-config", tmp_path)
        assert done.returncode == 1
        assert "VLM101" in done.stdout
        assert "1 launch (vLLM 0.33.0), 1 other file." in done.stdout

    def test_clean_launches_pass(self, tmp_path):
        (tmp_path / "serve.sh").write_text(CLEAN)
        (tmp_path / "again.sh").write_text(CLEAN)
        done = commit("inkling-check-config", tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert "2 launches" in done.stdout

    def test_files_without_a_launch_pass(self, tmp_path):
        for name, text in {
            "install.sh": "for f in *; do echo $f; done\n",
            "empty.sh": "",
            "compose.yaml": "services:\n  web:\n    image: nginx\n",
            "inkling-namespace.yaml": "apiVersion: v1\nkind: Namespace\n",
            "launch.yaml": "- a\n- b\n",
            "serve.yaml": "on: push\njobs: {}\n",
            "inkling.json": '{"name": "x", "version": "1"}',
        }.items():
            (tmp_path / name).write_text(text)
        done = commit("inkling-check-config", tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "No findings in 0 launches, 7 other files.\n"

    def test_a_file_that_cannot_be_read_stops_the_commit(self, tmp_path):
        (tmp_path / "vllm.yaml").write_text("model: {\n")
        done = commit("inkling-check-config", tmp_path)
        assert done.returncode == 2
        assert "`vllm.yaml` is not readable as YAML" in done.stderr

    def test_arguments_of_the_repository_are_heard(self, tmp_path):
        (tmp_path / "serve.sh").write_text(BROKEN)
        done = commit("inkling-check-config", tmp_path, "--output-format", "concise")
        assert "serve.sh:1 `--max-loras`: error VLM101" in done.stdout


class TestCheckAdapter:
    def test_both_files_of_an_adapter_are_one_adapter(self, tmp_path):
        shutil.copytree(DEMO / "adapters", tmp_path / "adapters")
        done = commit("inkling-check-adapter", tmp_path, "--engine", "native")
        assert (done.returncode, done.stderr) == (0, "")
        assert "No findings in 82 modules of 2 adapters for inkling generate; " in done.stdout

    def test_what_an_engine_drops_stops_the_commit(self, tmp_path):
        shutil.copytree(DEMO / "adapters" / "by-twos", tmp_path / "by twos")
        done = commit("inkling-check-adapter", tmp_path, "--engine", "vllm")
        assert done.returncode == 1
        assert "VLA001" in done.stdout

    def test_nothing_else_is_selected(self, tmp_path):
        (tmp_path / "config.json").write_text("{}")
        (tmp_path / "my_adapter_config.json").write_text("{}")
        assert commit("inkling-check-adapter", tmp_path) is None
