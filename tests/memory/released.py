"""The configs and specs of both released models."""

from typing import Any

from factories import INKLING, INKLING_SMALL, Sizes, raw_config
from inkling_runtime.adapter.model_spec import parse_model_spec


def released_config(sizes: Sizes) -> dict[str, Any]:
    """Return a released model's config.json, with the switches that both of them have."""
    switches = ("use_embed_norm", "use_gate_bias", "use_global_scale", "use_sconv")
    return raw_config(
        sizes,
        sliding_window_size=512,
        rel_extent=1024,
        model_max_length=1_048_576,
        shared_expert_sink=True,
        **dict.fromkeys(switches, True),
    )


RELEASED = {"Inkling": released_config(INKLING), "Inkling-Small": released_config(INKLING_SMALL)}

BIG, SMALL = map(parse_model_spec, RELEASED.values())
