"""`inkling plan` for people: tables of one rank's memory, and bars."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.memory.plan import ServerPlan
from inkling_cli.memory.setup import Setup
from inkling_cli.memory.sizes import Fit, Sizes
from inkling_cli.memory.slots import BYTES_PER_ELEMENT
from inkling_cli.render.bars import Blocks
from inkling_cli.render.printable import printable

_WIDTH = 80
_NARROW = 62
"""Below this width a table shows sums only, and no bars."""
_LABEL = 26


PlannedLaunch = tuple[LaunchSubject, ServerPlan, Sequence[str]]
"""A launch, its memory, and what was assumed."""


def render_plans(planned: Sequence[PlannedLaunch], blocks: Blocks, width: int | None) -> Text:
    """Return the memory of launches, one after the other."""
    texts = [render_plan(*parts, blocks, width) for parts in planned]
    return Text("\n\n").join(texts)


def render_plan(
    subject: LaunchSubject,
    plan: ServerPlan,
    assumptions: Sequence[str],
    blocks: Blocks,
    width: int | None = None,
) -> Text:
    """Return a launch's memory: slots by kind of module, what a rank holds, what choices cost."""
    width = min(width or _WIDTH, 120)
    text = Text()
    _add_head(text, subject, plan.sizes.setup)
    if plan.sizes.slot:
        _add_slot(text, plan.sizes, blocks, width)
    _add_rank(text, plan, blocks, width)
    _add_lines(text, "caches of each rank", _cache_lines(plan))
    _add_lines(text, "adapters", _adapter_lines(plan))
    _add_choices(text, plan)
    if assumptions:
        text.append("\nassumed\n", "bold")
        text.append("".join(f"  {printable(line)}\n" for line in assumptions))
    text.rstrip()
    return text


def _add_head(text: Text, subject: LaunchSubject, setup: Setup) -> None:
    place = subject.launch.location
    where = f"{place.file}:{place.line}" if place.line else f"{place.file}"
    model = subject.model.config_path or subject.model.ref or ""
    facts = {
        "launch": f"{subject.engine.display_name} {subject.version}, {where}",
        "model": model,
        "ranks": _parallel_words(setup),
        "slots": _slot_words(setup),
    }
    for label, value in facts.items():
        text.append(f"{label:<8}", "bold").append(f"{printable(value)}\n")


def _parallel_words(setup: Setup) -> str:
    parallel = setup.parallel
    words = [f"{parallel.tensor} share each layer" if parallel.tensor > 1 else "1"]
    if parallel.attention != parallel.tensor:
        words.append(f"attention divided by {parallel.attention}")
    if parallel.expert > 1:
        words.append(f"experts dealt to {parallel.expert}")
    if parallel.expert_tensor > 1:
        words.append(f"each expert divided by {parallel.expert_tensor}")
    if parallel.pipeline > 1:
        words.append(f"{parallel.pipeline} pipeline stages (the largest is shown)")
    return ", ".join(words)


def _slot_words(setup: Setup) -> str:
    if not setup.has_lora:
        return "none: LoRA is not enabled"
    layout = "shared-outer experts" if setup.is_shared_outer else "factors for each expert"
    base = ", one of them for requests without adapter" if setup.engine == "sglang" else ""
    return f"{setup.num_slots} of rank {setup.max_rank}, {layout}{base}"


def _add_slot(text: Text, sizes: Sizes, blocks: Blocks, width: int) -> None:
    is_wide = width >= _NARROW
    text.append("\none adapter slot on each rank\n", "bold")
    columns = ("A", "B", "both") if is_wide else ("both",)
    text.append(" " * _LABEL + "".join(f"{column:>11}" for column in columns) + "\n", "dim")
    room = width - _LABEL - 33 - 2
    for part in sizes.slot:
        factors = (BYTES_PER_ELEMENT * part.a, BYTES_PER_ELEMENT * part.b) if is_wide else ()
        cells = (*factors, part.pooled_bytes)
        text.append(f"{part.kind:<{_LABEL}}" + "".join(f"{binary(cell):>11}" for cell in cells))
        if is_wide and room >= 4:
            share = part.pooled_bytes / sizes.slot_bytes
            text.append("  ").append(blocks.bar(share, room), "green")
        text.append("\n")
    derived = BYTES_PER_ELEMENT * sum(part.derived for part in sizes.slot)
    idle = BYTES_PER_ELEMENT * sum(part.idle for part in sizes.slot)
    end = _LABEL + 11 * len(columns)
    if derived:
        label = "beside the pool (shared experts)"
        text.append(f"{label:<{end - 11}}{binary(derived):>11}\n")
    label = "one slot"
    text.append(f"{label:<{end - 11}}{binary(sizes.slot_bytes):>11}\n", "bold")
    if idle:
        label = "of it never used"
        text.append(f"{label:<{end - 11}}{binary(idle):>11}\n")


def _add_rank(text: Text, plan: ServerPlan, blocks: Blocks, width: int) -> None:
    sizes, found = plan.sizes, plan.fit
    setup = sizes.setup
    title = f"each rank, a GPU with {binary(found.gpu_bytes)}" if found else "each rank"
    text.append(f"\n{title}\n", "bold")
    rows = [(f"base weights, {setup.weights} (estimate)", sizes.base_bytes)]
    if sizes.slot:
        plural = "s" * (setup.num_slots != 1)
        rows.append((f"{setup.num_slots} adapter slot{plural}", sizes.slots_bytes))
    if found:
        caches = "caches and activations" if setup.engine == "vllm" else "caches"
        rows.append((caches, max(found.cache_bytes, 0)))
        rows.append((_reserve_words(setup), found.reserve_bytes))
    cells = blocks.stacked([nbytes for _, nbytes in rows], width - 2)
    for cell, (label, nbytes) in zip(cells, rows, strict=True):
        text.append(f"{cell[:1]:<2}", "green")
        text.append(f"{label:<{_LABEL + 9}}{binary(nbytes):>11}\n")
    text.append("".join(cells) + "\n", "green")
    if found:
        text.append(_verdict(sizes, found) + "\n", "bold" if found.is_enough else "bold red")


def _reserve_words(setup: Setup) -> str:
    return "left alone" if setup.engine == "vllm" else "kept for activations"


def _verdict(sizes: Sizes, found: Fit) -> str:
    count = found.max_slots
    slots = f"up to {count} slot{'s' * (count != 1)}" if count else "no slot"
    if found.is_enough:
        rooms = f"up to {found.num_sequences:,} sequences of {found.length:,} tokens"
        return f"fits: room for {rooms}" + (f", or {slots}" if sizes.slot else "")
    lacking = binary(found.needed_cache_bytes - found.cache_bytes)
    needed = binary(found.needed_cache_bytes)
    room = f"; room for {slots}" if sizes.slot else ""
    return f"does not fit: {lacking} short, as caches need {needed}{room}"


def _cache_lines(plan: ServerPlan) -> Iterator[tuple[str, str]]:
    cache = plan.sizes.cache
    yield "a token, global layers", binary(cache.global_bytes_per_token)
    yield f"sliding layers, {cache.window:,} tokens", f"{binary(cache.window_bytes)} a sequence"
    conv = binary(cache.conv_bytes_per_sequence)
    yield "convolution states", f"{conv} a sequence"
    yield f"a sequence of {plan.length:,}", binary(cache.sequence_bytes(plan.length))


def _adapter_lines(plan: ServerPlan) -> Iterator[tuple[str, str]]:
    setup = plan.sizes.setup
    for adapter in plan.adapters:
        sizes = f"{decimal(adapter.disk_bytes)} on disk, {binary(adapter.host_bytes)} in a worker"
        yield adapter.name, f"rank {adapter.rank}, {sizes}"
    released = f"{decimal(plan.released_bytes)} in bf16"
    yield f"a whole one of rank {setup.max_rank}", released
    if setup.has_lora:
        count, workers = setup.host_adapters, plan.num_workers
        total = f", {binary(workers * plan.host_bytes)} in all {workers}" if workers > 1 else ""
        plural = "s" * (count != 1)
        value = f"{binary(plan.host_bytes)} for {count} adapter{plural}{total}"
        yield "host memory of a worker", value


def _add_lines(text: Text, title: str, lines: Iterator[tuple[str, str]]) -> None:
    text.append(f"\n{title}\n", "bold")
    for label, value in lines:
        text.append(f"{printable(label):<{_LABEL}}  {value}\n")


def _add_choices(text: Text, plan: ServerPlan) -> None:
    if not plan.choices:
        return
    text.append("\nwhat each choice costs each rank\n", "bold")
    text.append(f"{'slots':>10}{'weights':>11}\n", "dim")
    now = plan.sizes
    for choice in plan.choices:
        slots = signed(choice.sizes.slots_bytes - now.slots_bytes)
        base = signed(choice.sizes.base_bytes - now.base_bytes)
        note = f"  {choice.note}" if choice.note else ""
        text.append(f"{slots:>10}{base:>11}  {choice.words}").append(f"{note}\n", "dim")


def binary(nbytes: int) -> str:
    """Return a size in binary units with three digits: `1.42 GiB`."""
    size = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1000 or unit == "TiB":
            break
        size /= 1024
    return f"{nbytes} B" if unit == "B" else f"{_three_digits(size)} {unit}"


def decimal(nbytes: int) -> str:
    """Return the size of a file in decimal units with three digits: `4.23 GB`."""
    size = float(nbytes)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 999.5 or unit == "TB":
            break
        size /= 1000
    return f"{nbytes} B" if unit == "B" else f"{_three_digits(size)} {unit}"


def signed(nbytes: int) -> str:
    """Return a difference with its sign; `-` for none."""
    if not nbytes:
        return "-"
    return f"{'+' if nbytes > 0 else '-'}{binary(abs(nbytes))}"


def _three_digits(size: float) -> str:
    if size < 10:
        return f"{size:.2f}"
    return f"{size:.1f}" if size < 100 else f"{size:,.0f}"
