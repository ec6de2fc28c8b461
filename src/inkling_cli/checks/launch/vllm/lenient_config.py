"""Values in adapter_config.json that vLLM takes although this tool takes them for faults.

vLLM calculates with what it finds: a rank of 4.0, `"lora_alpha": true` or `"use_rslora": 1` are
numbers and switches to it. Such an adapter is loaded, so a launch with it does not end there.
"""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inkling_cli.checks.launch.subject import LaunchSubject, UnreadAdapter
from inkling_cli.checks.launch.vllm.adapter_config import refused_settings
from inkling_cli.checks.launch.vllm.limits import rank_limit
from inkling_runtime.adapter.adapter_weights import WEIGHTS_NAME
from inkling_runtime.adapter.json_file import MAX_JSON_BYTES, decode_json
from inkling_runtime.adapter.lora_config import CONFIG_NAME
from inkling_runtime.adapter.pattern_table import is_plain
from inkling_runtime.adapter.regex_syntax import MAX_KEY_LENGTH
from inkling_runtime.adapter.regular_file import open_regular
from inkling_runtime.adapter.safetensors_file import read_header
from inkling_runtime.errors import InklingError


def takes_config(subject: LaunchSubject, unread: UnreadAdapter) -> bool:
    """Return whether vLLM reads the config of an adapter that could not be read here."""
    try:
        folder = Path(unread.folder).expanduser()
        read_header(folder / WEIGHTS_NAME, keeps_last=True)
        with open_regular(folder / CONFIG_NAME) as file:
            values = json.loads(decode_json(file.read(MAX_JSON_BYTES + 1), CONFIG_NAME))
        return isinstance(values, dict) and _is_taken(values, rank_limit(subject.launch))
    except (InklingError, OSError, RuntimeError, ValueError, re.error):
        return False


def _is_taken(values: Mapping[str, Any], limit: int) -> bool:
    rank, alpha = values.get("r"), values.get("lora_alpha")
    ranks = values.get("rank_pattern") or {}
    alphas = values.get("alpha_pattern") or {}
    if not (isinstance(rank, int | float) and isinstance(alpha, int | float)):
        return False
    if not (isinstance(ranks, dict) and isinstance(alphas, dict)):
        return False
    if not all(isinstance(value, int) and value > 0 for value in ranks.values()):
        return False
    if not all(isinstance(value, int | float | None) for value in alphas.values()):
        return False
    if rank <= 0 or max([rank, *ranks.values()]) > limit or any(refused_settings(values)):
        return False
    expressions = [key for key in (*ranks, *alphas) if not is_plain(key)]
    if any(len(key) > MAX_KEY_LENGTH for key in expressions):
        return False
    for key in expressions:
        re.compile(key)
    return not (isinstance(alpha, int) and abs(alpha) > sys.float_info.max)
