"""The command that writes an adapter once again as it is, or with one thing changed."""

from inkling_cli.checks.adapter.subject import AdapterSubject
from inkling_cli.checks.shell_word import shell_word


def rewrite_command(subject: AdapterSubject, option: str = "") -> str:
    """Return the command that writes an adapter in its own dialect, with an option if one is given.

    It names the base model where its sizes are needed.
    """
    dialect = subject.adapter.dialect.written_as
    model = " --model MODEL" if dialect == "peft" else ""
    further = f" {option}" if option else ""
    folder = shell_word(subject.path)
    return f"`inkling convert-adapter {folder} --to {dialect}{model}{further} -o OUT`"
