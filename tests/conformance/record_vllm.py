"""Record what vLLM itself says of the launches of `vllm_launches.py`.

    python tests/conformance/record_vllm.py ORACLE_FOLDER PYTHON

ORACLE_FOLDER holds `vllm_oracle.py`, PYTHON is an interpreter in which it runs. The verdicts go to
`vllm_verdicts.jsonl` beside this file, a launch per line; launches that the oracle cannot decide
are left out. Takes about a second per launch.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from conformance.vllm_adapters import write_vllm_world  # noqa: E402
from conformance.vllm_launches import SEED, Launch, generate, words_of  # noqa: E402

_TOLD = ("accepted", "refused")
_ERROR_LENGTH = 160


def record(launches: list[Launch], oracle: Path, python: str) -> list[dict[str, Any]]:
    """Return the verdicts on launches, as lines of the record."""
    with tempfile.TemporaryDirectory() as folder:
        root = write_vllm_world(Path(folder))
        cases = Path(folder) / "cases.jsonl"
        cases.write_text("".join(json.dumps(_case(launch, root)) + "\n" for launch in launches))
        answers = subprocess.run(
            [python, str(oracle / "vllm_oracle.py"), "--batch", str(cases)],
            env={**os.environ, "PYTHONHASHSEED": "0"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    verdicts = {answer["id"]: answer for answer in map(json.loads, answers.splitlines())}
    lines = (_line(launch, verdicts.get(launch.id, {}), str(root)) for launch in launches)
    return [line for line in lines if line["status"] in _TOLD]


def _case(launch: Launch, root: Path) -> dict[str, Any]:
    return {
        "id": launch.id,
        "adapter": str(root / "adapters" / launch.adapter),
        "model_config": str(root / launch.model / "config.json"),
        "flags": dict(launch.flags),
        "env": dict(launch.env),
        "request": dict(launch.request),
    }


def _line(launch: Launch, verdict: dict[str, Any], root: str) -> dict[str, Any]:
    error = " ".join((verdict.get("error") or "").replace(root, "{root}").split())
    error = re.sub(re.escape(tempfile.gettempdir()) + r"/[^\s:,]+", "PATH", error)
    return {
        "id": launch.id,
        "adapter": launch.adapter,
        "model": launch.model,
        "words": words_of(launch),
        "env": dict(launch.env),
        "load": "lora-modules",
        "status": verdict.get("status"),
        "stage": verdict.get("stage"),
        "error": error[:_ERROR_LENGTH],
    }


def _recorded(path: Path, launches: list[Launch]) -> dict[str, dict[str, Any]]:
    """Return the lines of a record by id, of those launches that are as they were."""
    made = {launch.id: (words_of(launch), dict(launch.env)) for launch in launches}
    lines = map(json.loads, path.read_text().splitlines())
    return {x["id"]: x for x in lines if made.get(x["id"]) == (x["words"], x["env"])}


def main() -> None:
    """Write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("oracle", type=Path)
    parser.add_argument("python")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--out", type=Path, default=HERE / "vllm_verdicts.jsonl")
    parser.add_argument("--new", action="store_true", help="keep the verdicts that are there")
    given = parser.parse_args()
    launches = generate(given.seed)
    kept = _recorded(given.out, launches) if given.new else {}
    wanted = [launch for launch in launches if launch.id not in kept]
    found = kept | {line["id"]: line for line in record(wanted, given.oracle, given.python)}
    lines = [found[launch.id] for launch in launches if launch.id in found]
    given.out.write_text("".join(json.dumps(line) + "\n" for line in lines))
    print(f"{len(lines)} verdicts")  # noqa: T201


if __name__ == "__main__":
    main()
