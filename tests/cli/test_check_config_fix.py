"""`inkling check-config --fix` and `--write`: what is printed, what is written, what is left."""

import json
import os
import stat
import threading
from pathlib import Path

import pytest

from inkling_cli.commands import check_config
from inkling_cli.main import main

BROKEN = (
    "#!/bin/sh\n# ours\nexport INKLING_MULTIMEM_AR=0\n"
    "vllm serve org/Inkling --enable-lora --max-loras 4 --max-cpu-loras 2  # slots\n"
)
RIGHT = BROKEN.replace("--max-cpu-loras 2", "--max-cpu-loras 4")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "serve.sh"
    path.write_bytes(BROKEN.encode())
    return path


def test_fix_prints_the_launch_alone_and_leaves_the_file(script, capfd):
    assert main(["check-config", "--fix", str(script)]) == 0
    out, err = capfd.readouterr()
    assert out == RIGHT
    assert "note: fixed VLM102" in err
    assert script.read_text() == BROKEN


@pytest.mark.parametrize(
    "content",
    [
        RIGHT.encode(),
        RIGHT.replace("\n", "\r\n").encode(),
        b"\xef\xbb\xbf" + RIGHT.encode(),
        RIGHT.rstrip("\n").encode(),
        RIGHT.replace("ours", "nôtre 🙂").encode(),
    ],
)
def test_fix_prints_a_right_launch_byte_for_byte(content, script, capfdbinary):
    script.write_bytes(content)
    assert main(["check-config", "--fix", str(script)]) == 0
    assert capfdbinary.readouterr().out == content


def test_fix_prints_a_command_as_one_line(capfd):
    command = ["vllm", "serve", "org/Inkling", "--enable-lora", "--served-model-name", "a b"]
    assert main(["check-config", "--fix", "--", *command]) == 0
    expected = "INKLING_MULTIMEM_AR=0 vllm serve org/Inkling --enable-lora"
    assert capfd.readouterr().out == f"{expected} --served-model-name 'a b'\n"


def test_what_is_left_is_said_and_counts(script, capfd):
    script.write_text(BROKEN.replace("--max-loras 4", "--max-loras 4 --seed x"))
    assert main(["check-config", "--fix", str(script)]) == 1
    out, err = capfd.readouterr()
    assert "warning: left LCH007 value-not-a-number: `--seed` is `x`" in err
    assert "--max-cpu-loras 4" in out


def test_json_holds_what_was_fixed_and_the_text(script, capfd):
    assert main(["check-config", "--fix", "--output-format", "json", str(script)]) == 0
    found = json.loads(capfd.readouterr().out)
    assert [finding["code"] for finding in found["fixed"]] == ["VLM102"]
    assert found["text"] == RIGHT
    assert "VLM102" not in {finding["code"] for finding in found["findings"]}


def test_write_changes_the_file_and_keeps_its_mode(script):
    script.chmod(0o751)
    assert main(["check-config", "--write", str(script)]) == 0
    assert script.read_text() == RIGHT
    assert stat.S_IMODE(script.stat().st_mode) == 0o751
    assert list(script.parent.iterdir()) == [script]


def test_write_keeps_a_byte_order_mark_and_line_ends(script):
    script.write_bytes(b"\xef\xbb\xbf" + BROKEN.replace("\n", "\r\n").encode())
    assert main(["check-config", "--write", str(script)]) == 0
    assert script.read_bytes() == b"\xef\xbb\xbf" + RIGHT.replace("\n", "\r\n").encode()


def test_write_follows_a_link_to_its_file(script, tmp_path):
    link = tmp_path / "link.sh"
    link.symlink_to(script)
    assert main(["check-config", "--write", str(link)]) == 0
    assert link.is_symlink()
    assert script.read_text() == RIGHT


def test_a_right_file_is_not_touched(script):
    script.write_text(RIGHT)
    before = script.stat()
    assert main(["check-config", "--write", str(script)]) == 0
    after = script.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_write_that_fails_leaves_the_file_and_nothing_else(script, monkeypatch, capfd):
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    assert main(["check-config", "--write", str(script)]) == 2
    assert "cannot be written: No space left on device" in capfd.readouterr().err
    assert script.read_text() == BROKEN
    assert list(script.parent.iterdir()) == [script]


def test_write_does_not_undo_a_change_made_meanwhile(script, monkeypatch, capfd):
    check = check_config.check_sources

    def edited_meanwhile(*args: object, **options: object) -> object:
        script.write_text(BROKEN + "# more\n")
        return check(*args, **options)

    monkeypatch.setattr(check_config, "check_sources", edited_meanwhile)
    assert main(["check-config", "--write", str(script)]) == 2
    assert "has changed since it was read" in capfd.readouterr().err
    assert script.read_text() == BROKEN + "# more\n"
    assert list(script.parent.iterdir()) == [script]


def test_write_refuses_a_file_of_two_names(script, tmp_path, capfd):
    (tmp_path / "other.sh").hardlink_to(script)
    assert main(["check-config", "--write", str(script)]) == 2
    assert "has 2 names (hard links)" in capfd.readouterr().err
    assert script.read_text() == BROKEN


def test_write_refuses_a_pipe(tmp_path, capfd):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(BROKEN,))
    writer.start()
    assert main(["check-config", "--write", str(pipe)]) == 2
    writer.join()
    assert "is no regular file" in capfd.readouterr().err
    assert pipe.is_fifo()


def test_an_empty_argument_is_an_error(capfd):
    assert main(["check-config", ""]) == 2
    assert "the launch is an empty text" in capfd.readouterr().err


def test_write_wants_a_file(capfd):
    assert main(["check-config", "--write", "--", "vllm", "serve", "M"]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert "`--write` changes a file" in err
