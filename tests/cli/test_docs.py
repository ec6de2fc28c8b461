"""The generated pages are those that the program would write now."""

from inkling_cli.docs import DOCS, main, render_cli_page, render_rules_page


def test_pages_are_current():
    assert main(["--check"]) == 0, "run `make docs`"


def test_pages_do_not_depend_on_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    assert render_cli_page() == (DOCS / "cli.md").read_text("utf-8")


def test_every_rule_and_link_is_there():
    page = render_rules_page()
    assert "### VLM001 multimem-ar-not-off\n" in page
    assert "(#vlm001-multimem-ar-not-off)" in page
