"""Why a module of an adapter is not applied by SGLang as it is meant, and who says so. Data."""

from collections.abc import Mapping
from enum import StrEnum


class Cause(StrEnum):
    """Why a module is refused, dropped, misapplied or not checked."""

    OUTSIDE_POOL = "outside the pool"
    LORA_OFF = "LoRA is off"
    SINK_NAME = "vLLM's name of shared experts"
    NOT_DECLARED = "not declared"
    ONE_HALF = "one half of experts"
    NO_SINK = "no sink"
    NO_LAYER = "name without a layer"
    WRONG_LAYER = "layer has no such module"
    EMPTY = "empty factor"
    NO_FACTOR = "no factor"
    REPLACED = "replaced by another name"
    ONE_EXPERT = "only expert 0"
    SOME_EXPERTS = "some experts"
    INTERLEAVED = "rows interleaved"
    RSLORA = "rsLoRA"
    ALPHA_PATTERN = "alpha pattern"
    RANK_PATTERN = "rank pattern"
    SETTING = "setting passed over"
    ELSEWHERE = "taken for another module"
    CUT = "does not fit its slot"
    FURTHER_FILE = "from a further file"
    NO_FLOATS = "no floats"
    ONE_FACTOR = "one factor alone"
    NO_MODEL = "no model"
    TARGETS_UNKNOWN = "targets unknown"
    LAYOUT_UNKNOWN = "layout unknown"


REST = "SGL218"
"""The rule over what no other tells; it is silent where rules over adapters tell a cause."""

TOLD_BY: Mapping[Cause, tuple[str, ...]] = {
    Cause.OUTSIDE_POOL: ("SGL206", "SGL207"),
    Cause.LORA_OFF: ("SGL114",),
    Cause.SINK_NAME: ("SGA001",),
    Cause.NOT_DECLARED: ("SGL208",),
    Cause.ONE_HALF: ("SGL214",),
    Cause.NO_SINK: ("SGL307",),
    Cause.NO_LAYER: ("ADP001", "ADP009", "ADP010", REST),
    Cause.WRONG_LAYER: ("ADP001", "ADP004", "ADP006", "ADP010", REST),
    Cause.EMPTY: ("ADP004", REST),
    Cause.NO_FACTOR: ("ADP001", "ADP009", REST),
    Cause.REPLACED: ("ADP001", "ADP005", "ADP009", "ADP010", REST),
    Cause.ONE_EXPERT: ("SGL303", "SGL304", "SGL306"),
    Cause.SOME_EXPERTS: ("ADP004", "ADP007", REST),
    Cause.INTERLEAVED: ("SGA002",),
    Cause.RSLORA: ("SGL401",),
    Cause.ALPHA_PATTERN: ("SGL402",),
    Cause.RANK_PATTERN: ("SGL403",),
    Cause.SETTING: ("ADP008",),
    Cause.ELSEWHERE: ("ADP001", "ADP006", "ADP010", REST),
    Cause.CUT: ("ADP001", "ADP003", "ADP004", "ADP005", "ADP007", REST),
    Cause.ONE_FACTOR: ("ADP001", "ADP002", REST),
    Cause.FURTHER_FILE: (REST,),
    Cause.NO_FLOATS: ("ADP004", REST),
    Cause.NO_MODEL: (),
    Cause.TARGETS_UNKNOWN: (),
    Cause.LAYOUT_UNKNOWN: (),
}
"""Cause → the rules of which at least one tells it. What is not checked is no finding."""

TOLD_BY_REST = tuple(cause for cause, codes in TOLD_BY.items() if REST in codes)

Found = tuple[Cause, str]
"""A cause, and the reason in words."""
