"""`inkling inspect` for people and for programs."""

from collections.abc import Iterable, Sequence
from typing import Any

from rich.text import Text

from inkling_cli.render.layer_rows import LAYER_ROWS, layer_ruler, row_label
from inkling_cli.render.printable import printable
from inkling_runtime.adapter.inspection import GroupSummary, Inspection
from inkling_runtime.adapter.sites import HEAD_SITE, Site, SiteKind

_SHOWN_NAMES = 15


def render_inspection(inspection: Inspection) -> Text:
    """Return what an adapter is: head line, groups, coverage picture, what is wrong or missing."""
    text = Text()
    for label, value in _facts(inspection):
        text.append(f"{label:<10}", "bold").append(f"{printable(value)}\n")
    if inspection.groups:
        text.append("\n").append_text(_group_table(inspection.groups))
        text.append("\n").append_text(_coverage(inspection))
    for title, lines in _remarks(inspection):
        text.append(f"\n{title}\n", "bold")
        for line in lines[:_SHOWN_NAMES]:
            text.append(f"  {printable(line)}\n")
        if len(lines) > _SHOWN_NAMES:
            text.append(f"  and {len(lines) - _SHOWN_NAMES} more\n")
    text.rstrip()
    return text


def _facts(inspection: Inspection) -> Iterable[tuple[str, str]]:
    adapter, config = inspection.adapter, inspection.adapter.config
    yield "adapter", str(adapter.path)
    yield "dialect", f"{adapter.dialect.name}: {adapter.dialect.title}"
    if base := config.values.get("base_model_name_or_path"):
        yield "base", str(base)
    rslora = " (rsLoRA)" if config.use_rslora else ""
    patterns = len(config.rank_pattern) + len(config.alpha_pattern)
    extra = f", patterns with {patterns} keys" if patterns else ""
    scalings = sorted({module.scaling for module in adapter.modules})
    yield (
        "rank",
        f"{config.rank}, alpha {config.alpha:g}{rslora}{extra}, "
        f"scaling {' '.join(f'{s:g}' for s in scalings) or '-'}",
    )
    shards = f" in {len(adapter.file.files)} files" if len(adapter.file.files) > 1 else ""
    yield (
        "size",
        f"{_bytes(adapter.file.file_size)}{shards}, {adapter.num_parameters:,} parameters in "
        f"{len(adapter.file.tensors):,} tensors, {' and '.join(adapter.dtypes) or 'no factors'}",
    )


def _bytes(count: int) -> str:
    """Return a size in decimal units: `4.23 GB`."""
    size = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000
    return f"{count} bytes" if unit == "bytes" else f"{size:.3g} {unit}"


def _group_table(groups: tuple[GroupSummary, ...]) -> Text:
    rows = [("group", "modules", "rank", "scaling", "parameters", "stored as")]
    for group in groups:
        rows.append(
            (
                group.group.value,
                f"{group.num_modules:,}",
                " ".join(map(str, group.ranks)),
                " ".join(f"{scaling:g}" for scaling in group.scalings),
                f"{group.num_parameters:,}",
                "; ".join(filter(None, [group.experts, *group.notes])),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    text = Text()
    for index, row in enumerate(rows):
        cells = [row[0].ljust(widths[0])]
        cells += [row[column].rjust(widths[column]) for column in range(1, 5)]
        line = "  ".join([*cells, row[5]]).rstrip()
        text.append(line + "\n", "bold" if index == 0 else None)
    return text


def _coverage(inspection: Inspection) -> Text:
    """Return a picture: a column for each layer, a row for each kind of module."""
    adapted = set(inspection.sites)
    known = set(inspection.spec.sites()) if inspection.spec else adapted
    layers = max((site.layer for site in known | adapted), default=-1) + 1
    legend = "█ adapted" + ("  · not adapted" if inspection.spec else "")
    text = Text("coverage by layer", "bold")
    text.append(f"   {legend}\n", "dim")
    text.append(layer_ruler(layers) + "\n", "dim")
    for label, kind in LAYER_ROWS:
        cells = [_cell(Site(layer, kind), adapted, known) for layer in range(layers)]
        if "".join(cells).strip():
            text.append(row_label(label)).append("".join(cells).rstrip() + "\n", "green")
    if HEAD_SITE in known | adapted:
        text.append(row_label("head")).append(_cell(HEAD_SITE, adapted, known) + "\n", "green")
    return text


def _cell(site: Site, adapted: set[Site], known: set[Site]) -> str:
    if site in adapted:
        return "█"
    return "·" if site in known else " "


def _remarks(inspection: Inspection) -> Iterable[tuple[str, list[str]]]:
    adapter, coverage = inspection.adapter, inspection.coverage
    if adapter.unknown:
        yield f"{len(adapter.unknown)} tensors with unknown names", list(adapter.unknown)
    if adapter.problems:
        lines = [f"{problem.module}: {problem.message}" for problem in adapter.problems]
        yield f"{len(lines)} problems", lines
    if inspection.undecodable:
        yield "not decodable", [inspection.undecodable]
    if adapter.base_copies:
        yield "base weights saved beside the factors", list(adapter.base_copies)
    if coverage is None:
        return
    if coverage.misfits:
        lines = [f"{misfit.site}: {misfit.message}" for misfit in coverage.misfits]
        yield f"{len(lines)} sites that do not fit the base model", lines
    if coverage.surplus:
        count = len(coverage.surplus)
        yield f"{count} sites that the base model does not have", layers_by_kind(coverage.surplus)
    if coverage.missing:
        count = len(coverage.missing)
        yield f"{count} sites of the base model are not adapted", layers_by_kind(coverage.missing)


def layers_by_kind(sites: Sequence[Site]) -> list[str]:
    """Return a line for each kind of site with its layers: `attn.wq_du in layers 3-5, 7`."""
    layers: dict[SiteKind, list[int]] = {}
    for site in sites:
        layers.setdefault(site.kind, []).append(site.layer)
    return [
        kind.value if found == [-1] else f"{kind.value} in {_layers(sorted(found))}"
        for kind, found in layers.items()
    ]


def _layers(numbers: Sequence[int]) -> str:
    return f"layer{'s' * (len(numbers) > 1)} {format_ranges(numbers)}"


def format_ranges(numbers: Sequence[int]) -> str:
    """Return sorted numbers with runs shortened: `0-2, 5`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def inspection_object(inspection: Inspection) -> dict[str, Any]:
    """Return the JSON object of an inspection, less `version` and `command`."""
    adapter, config, coverage = inspection.adapter, inspection.adapter.config, inspection.coverage
    return {
        "path": str(adapter.path),
        "dialect": adapter.dialect.name,
        "rank": config.rank,
        "alpha": config.alpha,
        "use_rslora": config.use_rslora,
        "scalings": sorted({module.scaling for module in adapter.modules}),
        "dtypes": list(adapter.dtypes),
        "file_bytes": adapter.file.file_size,
        "num_files": len(adapter.file.files),
        "num_tensors": len(adapter.file.tensors),
        "num_parameters": adapter.num_parameters,
        "groups": [_group_object(group) for group in inspection.groups],
        "modules": [
            {
                "name": module.name,
                "sites": [str(site) for site in module.sites],
                "layout": module.parsed.row.layout.value,
                "rank": module.rank,
                "scaling": module.scaling,
                "num_parameters": sum(t.num_elements for t in (module.a, module.b) if t),
            }
            for module in adapter.modules
        ],
        "unknown": list(adapter.unknown),
        "base_copies": list(adapter.base_copies),
        "problems": [
            {"kind": p.kind, "module": p.module, "message": p.message} for p in adapter.problems
        ],
        "undecodable": inspection.undecodable,
        "base_model": None
        if coverage is None
        else {
            "misfits": [{"site": str(m.site), "message": m.message} for m in coverage.misfits],
            "surplus": [str(site) for site in coverage.surplus],
            "missing": [str(site) for site in coverage.missing],
        },
    }


def _group_object(group: GroupSummary) -> dict[str, Any]:
    return {
        "group": group.group.value,
        "num_modules": group.num_modules,
        "num_parameters": group.num_parameters,
        "bytes": group.nbytes,
        "ranks": list(group.ranks),
        "scalings": list(group.scalings),
        "layers": list(group.layers),
        "experts": group.experts,
        "notes": list(group.notes),
    }
