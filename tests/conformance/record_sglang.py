"""Record what SGLang itself says about the launches of `sglang_launches.py`.

    python tests/conformance/record_sglang.py ORACLE_FOLDER PYTHON [new]

ORACLE_FOLDER holds `sglang_oracle.py`, which runs the engine's own parser, checks, model and
adapter loading on a CPU; PYTHON is the interpreter that has the engine. Each verdict becomes one
line of `sglang_verdicts.jsonl`; launches that the engine's side cannot judge are left out. With
`new` the launches that have a verdict keep it.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS))

from conformance.sglang_adapters import write_sglang_world  # noqa: E402
from conformance.sglang_launches import Trial, trials  # noqa: E402

VERDICTS = Path(__file__).with_name("sglang_verdicts.jsonl")
_LONGEST_ERROR = 160


def ask_engine(
    cases: list[dict[str, Any]], root: Path, oracle: Path, python: str
) -> Iterator[dict[str, Any]]:
    """Yield the engine's answer to each case, in order."""
    batch = root / "cases.jsonl"
    batch.write_text("".join(json.dumps(case) + "\n" for case in cases))
    process = subprocess.Popen(
        [python, str(oracle / "sglang_oracle.py"), "--batch", str(batch)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        text=True,
    )
    assert process.stdout is not None
    yield from map(json.loads, process.stdout)
    if process.wait():
        raise SystemExit(f"{oracle}: ended with {process.returncode}")


def told_error(answer: dict[str, Any], root: Path) -> str:
    """Return the beginning of the engine's error, without the folders of this run."""
    error = (answer["error"] or "").replace(str(root), "{root}").replace("\n", " ")
    error = re.sub(re.escape(tempfile.gettempdir()) + r"/[^\s:,]+", "PATH", error)
    return error[:_LONGEST_ERROR]


def verdict_of(trial: Trial, answer: dict[str, Any], root: Path) -> dict[str, Any]:
    """Return what is recorded of an answer."""
    return {
        "id": trial.id,
        "adapter": trial.adapter,
        "model": trial.model,
        "words": trial.words(),
        "env": dict(trial.env),
        "load": trial.load,
        "status": answer["status"],
        "stage": answer["stage"],
        "error": told_error(answer, root),
    }


def recorded() -> dict[str, str]:
    """Return the verdicts on file, by the launch's id, of launches that are still the same."""
    made = {trial.id: (trial.words(), dict(trial.env)) for trial in trials()}
    lines = {json.loads(line)["id"]: line for line in VERDICTS.read_text().splitlines()}
    told = {id_: json.loads(line) for id_, line in lines.items()}
    return {i: lines[i] for i, v in told.items() if made.get(i) == (v["words"], v["env"])}


def main(oracle: Path, python: str, known: dict[str, str]) -> None:
    """Ask about every launch that is not known and write the verdicts."""
    asked = {trial.id: trial for trial in trials() if trial.id not in known}
    with tempfile.TemporaryDirectory() as folder:
        root = write_sglang_world(Path(folder).resolve())
        lines = [*known.values()]
        cases = [trial.case(str(root)) for trial in asked.values()]
        for number, answer in enumerate(ask_engine(cases, root, oracle, python), 1):
            if answer["status"] in ("accepted", "refused"):
                lines.append(json.dumps(verdict_of(asked[answer["id"]], answer, root)))
            sys.stderr.write(f"\r{number} of {len(asked)}")
    VERDICTS.write_text("".join(f"{line}\n" for line in lines))
    sys.stderr.write(f"\n{len(lines)} verdicts in {VERDICTS.name}\n")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or sys.argv[3:] not in ([], ["new"]):
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2], recorded() if sys.argv[3:] else {})
