"""Values → text, JSON or SARIF. Nothing here writes; `inkling_cli.output` does."""
