"""Record what SGLang itself does with each module of the adapters of `sglang_adapter_trials.py`.

    python tests/conformance/record_sglang_adapters.py ORACLE_FOLDER PYTHON [new]

The arguments are those of `record_sglang.py`. Each verdict becomes one line of
`sglang_adapter_verdicts.jsonl`; what the engine's side cannot judge is left out. Applied is every
module of the adapter that a line does not name.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS))

from conformance.record_sglang import ask_engine, told_error  # noqa: E402
from conformance.sglang_adapter_trials import (  # noqa: E402
    SERVERS,
    Trial,
    trials,
    write_trial_world,
)

VERDICTS = Path(__file__).with_name("sglang_adapter_verdicts.jsonl")


def verdict_of(trial: Trial, answer: dict[str, Any], root: Path) -> dict[str, Any]:
    """Return what is recorded of an answer."""
    server = SERVERS[trial.server]
    verdict = {
        "id": trial.id,
        "base": trial.base,
        "mutations": list(trial.mutations),
        "server": trial.server,
        "words": trial.words(),
        "load": server.load,
        "model": server.model,
        "status": answer["status"],
    }
    if answer["status"] == "refused":
        return verdict | {"stage": answer["stage"], "error": told_error(answer, root)}
    lists = {key: answer[key] for key in ("dropped", "partial", "unfilled")}
    return verdict | {"num_applied": len(answer["applied"])} | lists


def recorded() -> dict[str, str]:
    """Return the verdicts on file of trials that are still the same, by id."""
    made = {trial.id: trial.words() for trial in trials()}
    lines = VERDICTS.read_text().splitlines() if VERDICTS.exists() else []
    told = {line: json.loads(line) for line in lines}
    return {v["id"]: line for line, v in told.items() if made.get(v["id"]) == v["words"]}


def main(oracle: Path, python: str, known: dict[str, str]) -> None:
    """Ask about every trial that is not known and write the verdicts."""
    asked = {trial.id: trial for trial in trials() if trial.id not in known}
    lines = dict(known)
    with tempfile.TemporaryDirectory() as folder:
        root = write_trial_world(Path(folder).resolve())
        cases = [trial.case(root) for trial in asked.values()]
        for number, answer in enumerate(ask_engine(cases, root, oracle, python), 1):
            if answer["status"] in ("accepted", "refused"):
                verdict = verdict_of(asked[answer["id"]], answer, root)
                lines[answer["id"]] = json.dumps(verdict)
            sys.stderr.write(f"\r{number} of {len(asked)}")
    kept = [lines[trial.id] for trial in trials() if trial.id in lines]
    VERDICTS.write_text("".join(f"{line}\n" for line in kept))
    sys.stderr.write(f"\n{len(kept)} verdicts in {VERDICTS.name}\n")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or sys.argv[3:] not in ([], ["new"]):
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2], recorded() if sys.argv[3:] else {})
