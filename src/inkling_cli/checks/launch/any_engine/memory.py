"""Rules over the memory that a launch takes, where the size of its GPUs is said."""

from collections.abc import Iterator

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.memory_setup import read_setup
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage
from inkling_cli.memory.sizes import fit, sizes_of

_SLOTS_OPTION = {Engine.VLLM: "--max-loras", Engine.SGLANG: "--max-loras-per-batch"}


@LAUNCH_RULES.rule("LCH301", "memory-does-not-fit", Severity.ERROR, stage=Stage.MODEL)
def check_memory_does_not_fit(subject: LaunchSubject) -> Iterator[Defect]:
    """Base weights, adapter slots and the least cache are larger than a GPU.

    *What it checks*: with `--gpu-memory`, and where the model's config.json is on this machine,
    what one rank holds against the memory that the engine uses of a GPU. The formulas are those of
    `inkling plan`; activations are not counted, so a launch that passes may still be tight.

    *Why it matters*: the server runs out of memory after minutes of loading.

    *How to fix*: fewer adapter slots, a rank limit that is not above the adapters' ranks, the
    shared-outer layout for adapters that have it, or more GPUs. `inkling plan` shows what each
    choice costs.
    """
    spec, gpu_bytes = subject.model.spec, subject.gpu_memory
    if spec is None or gpu_bytes is None:
        return
    setup = read_setup(subject, spec).setup
    sizes = sizes_of(spec, setup)
    found = fit(sizes, gpu_bytes)
    if found.is_enough:
        return
    needed = sizes.fixed_bytes + found.needed_cache_bytes
    room = gpu_bytes - found.reserve_bytes
    slots = f", {_size(sizes.slots_bytes)} of it {setup.num_slots} adapter slots"
    option = _SLOTS_OPTION[subject.engine]
    fewer = f"`{option} {found.max_slots}` fits; " if found.max_slots else ""
    yield Defect(
        f"each rank needs {_size(needed)}{slots if sizes.slots_bytes else ''}, expected at most "
        f"{_size(room)} of a GPU's {_size(gpu_bytes)}",
        f"{fewer}`inkling plan` shows what each choice costs",
        subject.at(option) if found.max_slots else subject.launch.location,
    )


def _size(nbytes: int) -> str:
    return f"{nbytes / 2**30:.3g} GiB" if nbytes >= 2**30 else f"{nbytes / 2**20:.3g} MiB"
