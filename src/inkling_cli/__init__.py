"""The `inkling` command line: what people see. Typer and rich live here and nowhere else."""
