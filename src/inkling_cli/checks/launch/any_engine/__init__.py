"""Rules that hold for every engine, codes LCH: words, inputs, adapters, memory."""

from inkling_cli.checks.launch.any_engine import adapters, inputs, memory, options, words

__all__ = ["adapters", "inputs", "memory", "options", "words"]
