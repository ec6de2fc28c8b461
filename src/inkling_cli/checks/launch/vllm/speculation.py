"""What a launch says of speculative decoding: `--speculative-config`, its dotted form, `--spec-…`.

Data for rules; nothing here judges.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from inkling_cli.checks.launch.launch import Launch
from inkling_cli.checks.launch.parse.arguments import is_unknown
from inkling_cli.checks.launch.subject import LaunchSubject

OPTION = "--speculative-config"
_SHORT = {
    "--spec-method": "method",
    "--spec-model": "model",
    "--spec-tokens": "num_speculative_tokens",
}


@dataclass(frozen=True, slots=True)
class Speculation:
    """The settings by key, with `_` in the keys, and the options that name the same key twice."""

    settings: Mapping[str, Any]
    option: str
    """The option that was given, for places and messages."""
    conflicts: tuple[tuple[str, str], ...] = ()
    is_object: bool = True
    """False where `--speculative-config` is JSON but no object."""

    @property
    def method(self) -> str | None:
        """The method as vLLM takes it: `mtp` for all methods of that kind."""
        method = self.settings.get("method")
        if method is None:
            return "ngram" if self.settings.get("model") in ("ngram", "[ngram]") else None
        text = str(method)
        return "mtp" if text.endswith("mtp") else text

    @property
    def num_tokens(self) -> int | None:
        """How many tokens are drafted per step, where the launch says so."""
        value = self.settings.get("num_speculative_tokens")
        return value if isinstance(value, int) and not isinstance(value, bool) else None


def mtp_layers(subject: LaunchSubject) -> int:
    """Return how many MTP layers the model's config says that there are."""
    mtp = subject.model.config.get("mtp_config")
    count = mtp.get("num_nextn_predict_layers") if isinstance(mtp, dict) else None
    return count if isinstance(count, int) else 0


def read_speculation(launch: Launch) -> Speculation | None:
    """Return what a launch says of speculative decoding; None if nothing, or nothing readable."""
    settings: dict[str, Any] = {}
    option = ""
    for use in launch.uses:
        if use.name == OPTION:
            if not use.values or is_unknown(use.values[-1]):
                return None
            value = _plain(use.values[-1])
            if isinstance(value, str | None):
                return None
            if not isinstance(value, dict):
                return Speculation({}, OPTION, is_object=False)
            settings, option = value, OPTION
    for use in launch.uses:
        if use.name.startswith(f"{OPTION}.") and use.values:
            settings |= _nested(use.name.split(".")[1:], use.values[-1])
            option = option or use.name
    settings = {key.replace("-", "_"): value for key, value in settings.items()}
    return _with_short_options(launch, settings, option)


def _with_short_options(
    launch: Launch, settings: dict[str, Any], option: str
) -> Speculation | None:
    conflicts = []
    for name, key in _SHORT.items():
        text = launch.text(name)
        if text is None or is_unknown(text) or text == "None":
            continue
        if key in settings:
            conflicts.append((name, key))
        settings[key] = _plain(text) if key == "num_speculative_tokens" else text
        option = option or name
    return Speculation(settings, option, tuple(conflicts)) if option else None


def _nested(keys: list[str], text: str) -> dict[str, Any]:
    value = _plain(text)
    for key in reversed(keys):
        value = {key: value}
    return value if isinstance(value, dict) else {}


def _plain(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
