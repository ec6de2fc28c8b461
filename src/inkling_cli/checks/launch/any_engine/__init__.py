"""Rules that hold for every engine, codes LCH: the words, the inputs they name, the adapters."""

from inkling_cli.checks.launch.any_engine import adapters, inputs, options, words

__all__ = ["adapters", "inputs", "options", "words"]
