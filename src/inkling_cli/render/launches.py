"""What `inkling check-config` says of the launches themselves."""

from collections.abc import Sequence
from typing import Any

from inkling_cli.checks.launch.subject import LaunchSubject


def what_was_checked(subjects: Sequence[LaunchSubject]) -> str:
    """Return the subjects in words: `1 launch (vLLM 0.33.0, 2 of 3 adapters read)`."""
    parts = []
    for subject in subjects:
        part = f"{subject.engine.display_name} {subject.version}"
        total = len(subject.adapters) + len(subject.unread)
        if total:
            read = len(subject.adapters)
            part += f", {read} of {total} adapter{'s' * (total != 1)} read"
        parts.append(part)
    plural = "es" * (len(subjects) != 1)
    return f"{len(subjects)} launch{plural} ({'; '.join(parts)})"


def launch_object(subject: LaunchSubject) -> dict[str, Any]:
    """Return a launch as a part of the JSON object."""
    launch, model = subject.launch, subject.model
    unread = {id(entry.ref): entry for entry in subject.unread}
    return {
        "engine": subject.engine.value,
        "engine_version": subject.version,
        "location": {"file": launch.location.file, "line": launch.location.line},
        "model": {"ref": model.ref, "config": model.config_path, "is_inkling": model.is_inkling},
        "adapters": [
            {
                "name": ref.name,
                "path": ref.path,
                "at_startup": ref.at_startup,
                "is_read": id(ref) not in unread,
            }
            for ref in launch.adapters
        ],
    }
