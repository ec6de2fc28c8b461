"""Record what vLLM itself does with the adapters of `vllm_adapter_cases.py`, module by module.

    python tests/conformance/record_vllm_adapters.py ORACLE_FOLDER PYTHON

ORACLE_FOLDER holds `vllm_oracle.py`, PYTHON is an interpreter in which it runs. The verdicts go to
`vllm_adapter_verdicts.jsonl` beside this file, a case per line: `modules` has a letter for each
module of the adapter, sorted by name (a: applied, d: dropped, p: partial), and `partial` the shares
of their factors that arrived. Cases that the oracle cannot decide are left out. Takes about a
second per case.
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

from conformance.vllm_adapter_cases import (  # noqa: E402
    SEED,
    SETTINGS,
    Case,
    draft_of_case,
    generate,
    is_packed,
    modules_of,
)
from conformance.vllm_adapters import write_vllm_world  # noqa: E402
from conformance.vllm_drafts import write_draft  # noqa: E402

_TOLD = ("accepted", "refused")
_ERROR_LENGTH = 120
_LETTERS = {"applied": "a", "dropped": "d", "partial": "p"}


def record(cases: list[Case], oracle: Path, python: str) -> list[dict[str, Any]]:
    """Return the verdicts on cases, as lines of the record."""
    with tempfile.TemporaryDirectory() as folder:
        root = write_vllm_world(Path(folder) / "world")
        asked = [_asked(case, root, Path(folder) / str(i)) for i, case in enumerate(cases)]
        batch = Path(folder) / "cases.jsonl"
        batch.write_text("".join(json.dumps(line) + "\n" for line in asked))
        answers = subprocess.run(
            [python, str(oracle / "vllm_oracle.py"), "--batch", str(batch)],
            env={**os.environ, "PYTHONHASHSEED": "0"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    verdicts = {answer["id"]: answer for answer in map(json.loads, answers.splitlines())}
    lines = (_line(case, verdicts.get(case.id, {}), folder) for case in cases)
    return [line for line in lines if line["status"] in _TOLD]


def _asked(case: Case, root: Path, folder: Path) -> dict[str, Any]:
    setting, draft = SETTINGS[case.setting], draft_of_case(case.start, case.changes)
    says_packed = is_packed(draft) and not setting.is_named
    return {
        "id": case.id,
        "adapter": str(write_draft(folder, draft)),
        "model_config": str(root / setting.model / "config.json"),
        "flags": dict(setting.flags),
        "env": dict(setting.env),
        "request": {"is_3d_lora_weight": "true"} if says_packed else {},
    }


def _line(case: Case, verdict: dict[str, Any], folder: str) -> dict[str, Any]:
    error = " ".join((verdict.get("error") or "").split())
    error = re.sub(re.escape(tempfile.gettempdir()) + r"/[^\s:,]+", "PATH", error)
    letters = {
        module: letter for fate, letter in _LETTERS.items() for module in verdict.get(fate, ())
    }
    accepted = verdict.get("status") == "accepted"
    modules = modules_of(draft_of_case(case.start, case.changes)) if accepted else []
    return {
        "id": case.id,
        "start": case.start,
        "changes": list(case.changes),
        "setting": case.setting,
        "status": verdict.get("status"),
        "stage": verdict.get("stage"),
        "error": error[:_ERROR_LENGTH],
        "modules": "".join(letters[module] for module in modules),
        "partial": verdict.get("partial", {}),
        "unfilled": verdict.get("unfilled", {}),
    }


def main() -> None:
    """Write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("oracle", type=Path)
    parser.add_argument("python")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--out", type=Path, default=HERE / "vllm_adapter_verdicts.jsonl")
    parser.add_argument("--new", action="store_true", help="keep the verdicts that are there")
    given = parser.parse_args()
    cases = generate(given.seed)
    lines = map(json.loads, given.out.read_text().splitlines()) if given.new else ()
    found = {line["id"]: line for line in lines}
    wanted = [case for case in cases if case.id not in found]
    found |= {line["id"]: line for line in record(wanted, given.oracle, given.python)}
    kept = [found[case.id] for case in cases if case.id in found]
    given.out.write_text("".join(json.dumps(line) + "\n" for line in kept))
    print(f"{len(kept)} verdicts on {len(cases)} cases")  # noqa: T201


if __name__ == "__main__":
    main()
