"""What the engine has done so far, in numbers."""

from dataclasses import dataclass


@dataclass(slots=True)
class Stats:
    """Counts since the start; those at the end are of now."""

    steps: int = 0
    tokens_computed: int = 0
    """Tokens that passed the model, of prompts and of answers."""
    tokens_generated: int = 0
    tokens_reused: int = 0
    """Prompt tokens that were not computed, because an earlier sequence began with them."""
    requests_finished: int = 0
    requests_cancelled: int = 0
    requests_in_error: int = 0
    running: int = 0
    waiting: int = 0
    used_blocks: int = 0
    """Blocks of the cache that running sequences own."""
    kept_prefixes: int = 0
    """Places in earlier sequences at which a later one can go on."""
