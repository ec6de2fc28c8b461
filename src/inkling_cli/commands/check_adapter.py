"""`inkling check-adapter`: what each consumer will really do with an adapter."""

import os
from dataclasses import replace
from itertools import chain, groupby
from pathlib import Path
from typing import Annotated

import typer

from inkling_cli.checks.adapter import AdapterSubject, Consumer
from inkling_cli.checks.adapter.folder import read_folder
from inkling_cli.checks.adapter.subject import make_subject
from inkling_cli.checks.finding import Report, sort_findings
from inkling_cli.checks.verdicts.judging import Judgement, judge_adapter
from inkling_cli.checks.verdicts.question import Load, make_question
from inkling_cli.exit_codes import FailOn, exit_code_of
from inkling_cli.options import (
    DialectOption,
    EnvFileOption,
    EnvOption,
    FailOnOption,
    FindingsFormatOption,
    InheritOption,
    ModelOption,
    VersionOption,
)
from inkling_cli.output import Output, OutputFormat
from inkling_cli.render.plot import require_plot_path, write_plot
from inkling_cli.render.verdicts import judgement_details, render_verdicts, what_was_checked
from inkling_runtime.adapter.dialects import require_dialect
from inkling_runtime.adapter.values import AdapterValues
from inkling_runtime.errors import InklingError

EXAMPLES = (
    "inkling check-adapter ADAPTER --model MODEL/config.json",
    "inkling check-adapter ADAPTER --model MODEL --engine vllm -- --max-lora-rank 32",
    "inkling check-adapter ADAPTER --launch serve.sh --values",
)


def check(
    context: typer.Context,
    adapters: Annotated[
        list[Path],
        typer.Argument(metavar="ADAPTER", help="The adapter's folder, or a file in it."),
    ],
    model: ModelOption = None,
    engine: Annotated[
        list[Consumer] | None,
        typer.Option(help="Who is to apply it; all by default. Repeatable."),
    ] = None,
    engine_version: VersionOption = None,
    launch: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The launch that is to serve it, as check-config reads."),
    ] = None,
    load: Annotated[
        Load, typer.Option(help="When the engine gets it: from its command line, or later.")
    ] = Load.STARTUP,
    env: EnvOption = None,
    env_file: EnvFileOption = None,
    inherit_env: InheritOption = False,
    dialect: DialectOption = None,
    values: Annotated[
        bool, typer.Option("--values", help="Read the numbers too, not the names and shapes alone.")
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE.svg|png|html", help="Write a picture of the deltas' norms."),
    ] = None,
    output_format: FindingsFormatOption = OutputFormat.FULL,
    fail_on: FailOnOption = FailOn.ERROR,
) -> int:
    """Check what vLLM, SGLang, PEFT and this tool's runtime do with an adapter.

    Each module is applied, dropped, misapplied or refused; most of it happens without a message.
    With --model every module is compared with the base model's layers and widths; without it, what
    that would decide is said to be not checked.

    Engines are judged under the launch that is best for the adapter, which is shown, or under the
    user's: --launch FILE, or after `--` the options of one engine as on its own command line, in
    which nothing is taken for granted but `--enable-lora` and the model. Several adapters are
    checked one by one.
    """
    output = Output("check-adapter", output_format)
    question = make_question(
        consumers=engine or (),
        version=engine_version,
        model=model,
        words=context.obj or (),
        file=launch,
        load=load,
        env=env or (),
        env_files=env_file or (),
        inherited=os.environ if inherit_env else {},
    )
    if dialect is not None:
        require_dialect(dialect)
    folders = {folder.path: folder for folder in (read_folder(p, dialect) for p in adapters)}
    if plot is not None:
        _require_plottable(len(folders), plot)
    judged = []
    for folder in folders.values():
        subject = None
        if folder.adapter is not None:
            subject = make_subject(folder.adapter, question.spec)
            if values or plot is not None:
                subject = _with_values(subject, output)
        judged.append(judge_adapter(folder, subject, question))
    if plot is not None:
        _write_plot(judged[0], plot)
    found = sort_findings(chain.from_iterable(judgement.findings for judgement in judged))
    report = Report("check-adapter", tuple(finding for finding, _ in groupby(found)))
    head = render_verdicts(judged, output.width)
    output.show_report(report, what_was_checked(judged), judgement_details(judged), head=head)
    return exit_code_of(report, fail_on)


def _with_values(subject: AdapterSubject, output: Output) -> AdapterSubject:
    """Return the subject with its numbers read: by two threads, which BLAS must not multiply."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from inkling_runtime.adapter.values.read import read_values

    with output.progress(subject.adapter.file.file_size) as advance:
        return replace(subject, values=read_values(subject.adapter, subject.pairs, advance))


def _require_plottable(count: int, path: Path) -> None:
    require_plot_path(path)
    if count > 1:
        raise InklingError(
            f"`--plot` is given with {count} adapters, expected one",
            "check them one by one",
        )


def _write_plot(judgement: Judgement, path: Path) -> None:
    write_plot(_values_of(judgement), path)


def _values_of(judgement: Judgement) -> AdapterValues:
    subject = judgement.subject
    if subject is None or subject.values is None:
        problem = judgement.folder.problem
        raise InklingError(
            f"`{judgement.folder.path}` cannot be plotted: it was not read",
            problem.message if problem else None,
        )
    return subject.values
