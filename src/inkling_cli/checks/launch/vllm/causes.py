"""Why vLLM does not apply a module as it is meant, as data, with the rules that tell each cause."""

from enum import StrEnum


class Cause(StrEnum):
    """Why a module is not applied as it is meant, each with the rules that tell it.

    Rules over adapters (ADP) tell theirs of names that the adapter's dialect has, VLM214 of others.
    """

    rules: tuple[str, ...]

    def __new__(cls, words: str, *rules: str) -> "Cause":
        """Return a cause in words with the codes of its rules."""
        cause = str.__new__(cls, words)
        cause._value_ = words
        cause.rules = rules
        return cause

    LORA_OFF = "LoRA is off", "VLM106"
    REFUSED = "refused", "VLM202", "VLM203", "VLM205", "VLM206", "VLM207", "VLM208", "VLM104"
    BASE_COPY = "copy of base weights", "ADP016"
    SHARED_NAME = "released name of shared experts", "VLA001"
    NOWHERE = "path leads nowhere", "VLM212"
    NOT_IN_MODEL = "not in the base model", "ADP006", "ADP004"
    LEFT_OUT = "left out by targets", "VLM209"
    SHARDED = "lost to full sharding", "VLM108"
    BESIDE_LOGITS = "head beside logits_processor", "VLM113"
    REPLACED = "replaced by another name", "ADP005", "VLM214"
    NO_A = "no lora_A", "ADP002", "VLM214"
    EMPTY = "empty factor", "ADP004", "VLM214"
    MIXED = "mixed with another name", "ADP005", "VLM214"
    SMALLER = "smaller than its place", "ADP007", "ADP004", "ADP003", "ADP018", "VLM214"
    RANK = "rank is not the config's", "ADP003", "ADP018", "VLM214"
    CUT = "cut to the first expert", "VLM213"
    NO_FLOATS = "no floats", "ADP004", "VLM214"
    SETTING = "setting passed over", "ADP008"
    ROWS = "rows not interleaved", "VLA002"
    NO_MODEL = "no model"
    TARGETS_UNKNOWN = "targets unknown"
