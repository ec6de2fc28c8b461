"""The commands, one file each: read, call the library, hand a value to `Output`.

A command is a function with Typer's annotations that returns its exit code, and `EXAMPLES` for
the end of its `--help`. `inkling_cli.main` lists them.
"""
