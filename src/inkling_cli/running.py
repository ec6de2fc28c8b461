"""`inkling generate --prompts`: from a file of prompts to a file of results."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from inkling_cli.exit_codes import ExitCode
from inkling_cli.generation.results_file import ResultsFile
from inkling_cli.generation.run_tasks import Tally, make_task_requests, run_tasks
from inkling_cli.generation.tasks import Task, read_tasks
from inkling_cli.output import Output
from inkling_runtime.errors import InklingError, format_count


@dataclass(frozen=True, slots=True)
class FileRun:
    """Which file is run, and where its results go."""

    prompts: Path
    results: Path | None
    resume: bool
    overwrite: bool
    adapters: Sequence[str]
    """The loaded adapters."""
    chosen: Sequence[str]
    """What lines run with that name no adapter."""

    def read(self, sampling: Mapping[str, Any], effort: str) -> tuple[list[Task], Path]:
        """Return the tasks of the file and where their results go.

        Raises:
            InklingError: the options contradict each other, or a line is not a task.
        """
        if self.results is None:
            raise InklingError("`--prompts` needs a place for its results", "`--results FILE`")
        if self.resume and self.overwrite:
            raise InklingError("`--resume` keeps what `--overwrite` replaces, expected one of them")
        if len(self.chosen) > 1:
            raise InklingError(
                f"there are {len(self.chosen)} `--adapter` beside `--prompts`, expected one",
                'let each line name its own: `{"adapter": "NAME", …}`',
            )
        if self.results.exists() and self.prompts.exists():
            self._require_apart(self.results)
        adapter = self.chosen[0] if self.chosen else None
        return read_tasks(self.prompts, self.adapters, adapter, sampling, effort), self.results

    def _require_apart(self, results: Path) -> None:
        if self.prompts.samefile(results):
            raise InklingError(
                f"`--prompts` and `--results` are the same file, `{results}`; expected two"
            )


def run_file(
    asked: FileRun,
    sampling: Mapping[str, Any],
    effort: str,
    load: Callable[[], Any],
    output: Output,
) -> int:
    """Run what of a file is not done yet, and say how it went.

    Args:
        asked: the files.
        sampling: what lines do not say.
        effort: what lines do not say.
        load: returns the model; called only if there is something to do.
        output: gets progress and the tally.

    Returns:
        The exit code: findings if some requests could not be done.

    Raises:
        InklingError: the files are not what they should be, or the model cannot be loaded.
    """
    tasks, path = asked.read(sampling, effort)
    with closing(ResultsFile(path, resume=asked.resume, overwrite=asked.overwrite)) as results:
        done = results.find_done(tasks)
        left = [task for task in tasks if task.id not in done]
        tally = Tally(len(tasks), skipped=len(tasks) - len(left))
        if left:
            text_llm = load()
            requests = make_task_requests(text_llm, left, asked.prompts)
            results.begin()
            _run(text_llm, left, requests, tally, results, output)
        else:
            results.begin()
    output.show(_render(tally, path), {"results": str(path), **asdict(tally)})
    return ExitCode.FINDINGS if tally.failed else ExitCode.CLEAN


def _run(
    text_llm: Any,
    tasks: Sequence[Task],
    requests: Sequence[Any],
    tally: Tally,
    results: ResultsFile,
    output: Output,
) -> None:
    begin = monotonic()
    try:
        with output.counted(tally.total, "prompts") as show:

            def advance(tally: Tally) -> None:
                rate = tally.tokens / max(monotonic() - begin, 1e-9)
                show(tally.skipped + tally.done, f"{rate:.0f} tokens/s")

            run_tasks(text_llm, tasks, requests, tally, results.add, advance)
    except BaseException:
        if not tally.skipped + tally.done:
            raise
        output.note(
            f"{tally.skipped + tally.done} of {tally.total} results are in `{results.path}`; "
            "`--resume` goes on with the rest"
        )
        raise


def _render(tally: Tally, path: Path) -> str:
    parts = [f"{format_count(tally.done - tally.failed, 'prompt')} done"]
    if tally.failed:
        parts.append(f"{tally.failed} could not be done (see `error` in their results)")
    if tally.skipped:
        parts.append(f"{tally.skipped} done before")
    return f"{', '.join(parts)}; {format_count(tally.tokens, 'new token')} in `{path}`"
