"""Every defect of the comparison with other tools is named, with exit code 1."""

import json

import pytest

from checks.adapter_cases import convert
from checks.known_defects import HARMLESS, PEFT, RELEASED, KnownDefect, renamed
from factories import (
    INKLING,
    INKLING_SMALL,
    raw_config,
    released_adapter_config,
    released_modules,
    write_model,
    write_released_adapter,
    write_sparse_adapter,
)
from inkling_cli.main import main

SERVED = dict.fromkeys(("shared_expert_sink", "use_embed_norm", "use_sconv"), True)
"""What engines expect of a config beside sizes."""


@pytest.fixture
def model(tmp_path):
    return write_model(tmp_path / "model", raw_config(**SERVED))


@pytest.fixture
def run(capsys):
    """Return a function that checks an adapter: its exit code, and the codes that are found."""

    def check(folder, model, *words):
        command = ["check-adapter", folder, "--model", model, *words, "--output-format", "json"]
        code = main([str(word) for word in command])
        shown = capsys.readouterr().out
        return code, [finding["code"] for finding in json.loads(shown)["findings"]]

    return check


def clean_form(dialect, folder):
    released = write_released_adapter(folder / "released")
    return released if dialect == "tinker" else convert(released, dialect, folder / dialect)


def test_the_tables_hold_every_row():
    apart = {"Small adapter, Inkling config", "prefix model.llm."}
    assert len({defect.name for defect in RELEASED} | apart) == 28
    assert len({defect.name for defect in (*PEFT, *HARMLESS)}) == 18


@pytest.mark.parametrize("defect", [*RELEASED, *PEFT], ids=lambda d: f"{d.clean}: {d.name}")
def test_a_known_defect_is_named(defect: KnownDefect, tmp_path, model, run):
    folder = clean_form(defect.clean, tmp_path)
    words = ["--engine", defect.engine, *defect.words]
    assert run(folder, model, *words) == (0, [])
    defect.edit(folder)
    code, found = run(folder, model, *words)
    assert code == 1
    assert set(defect.codes) <= set(found)


@pytest.mark.parametrize("change", HARMLESS, ids=lambda change: change.name)
def test_a_change_without_harm_is_no_error(change: KnownDefect, tmp_path, model, run):
    folder = clean_form(change.clean, tmp_path)
    change.edit(folder)
    assert run(folder, model, "--engine", change.engine, *change.words) == (0, list(change.codes))


def test_an_adapter_of_the_other_size_is_named(tmp_path, run):
    folder = write_sparse_adapter(
        tmp_path / "small", released_modules(INKLING_SMALL), released_adapter_config(rank=1)
    )
    model = write_model(tmp_path / "model", raw_config(INKLING))
    code, found = run(folder, model, "--engine", "native")
    assert (code, found) == (1, ["ADP007"])


def test_the_prefix_with_which_peft_loads_a_half_is_named(tmp_path, model, run):
    folder = clean_form("tinker", tmp_path)
    renamed("language_model.", "base_model.model.model.llm.")(folder)
    code, found = run(folder, model, "--engine", "peft")
    assert (code, "PFA003" in found) == (1, True)
