"""Rules over the factors of an adapter, module by module, whoever consumes it and on any model."""

from collections.abc import Iterator

from inkling_cli.checks.adapter.subject import ADAPTER_RULES, AdapterSubject
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.rule import Defect
from inkling_runtime.adapter.adapter_module import AdapterModule
from inkling_runtime.adapter.module_problems import Problem

_ERROR = Severity.ERROR
_EXPORT_AGAIN = "export the adapter again"


@ADAPTER_RULES.rule("ADP002", "missing-factor", _ERROR)
def check_missing_factor(subject: AdapterSubject) -> Iterator[Defect]:
    """A module with lora_A or lora_B alone.

    *What it checks*: each module has both factors.

    *Why it matters*: one factor has no effect. Some engines fail on it with an assertion, others
    fill the other with zeros, which silently drops the module.

    *How to fix*: export the adapter again; the file is incomplete.
    """
    found = _problems(subject, "missing-factor")
    yield from _first_of(subject, found, "the file is incomplete: export it again")


@ADAPTER_RULES.rule("ADP003", "rank-mismatch", _ERROR)
def check_rank_mismatch(subject: AdapterSubject) -> Iterator[Defect]:
    """Ranks that contradict each other or the config.

    *What it checks*: lora_A and lora_B of a module have one rank, the one that the config gives
    the module (`r`, or `rank_pattern` where it matches).

    *Why it matters*: the scaling is computed from the config's rank. vLLM accepts another rank in
    the tensors and applies the wrong scale; SGLang fails when the adapter is first used; PEFT
    refuses to load.

    *How to fix*: correct `r` or `rank_pattern` in adapter_config.json.
    """
    transposed = _transposed(subject)
    found = [p for p in _problems(subject, "rank") if p.module not in transposed]
    yield from _first_of(subject, found, "correct `r` or `rank_pattern` in adapter_config.json")


@ADAPTER_RULES.rule("ADP004", "unusable-tensor", _ERROR)
def check_unusable_tensor(subject: AdapterSubject) -> Iterator[Defect]:
    """A tensor whose shape or dtype cannot be a factor of its module.

    *What it checks*: the number of dimensions is that of the module's layout, no size is zero,
    both factors hold the same number of experts, and the dtype is a float.

    *Why it matters*: engines copy such a tensor into a corner of their buffers, or fail when the
    adapter is first used.

    *How to fix*: export the adapter again.
    """
    for kind in ("shape", "dtype"):
        yield from _first_of(subject, _problems(subject, kind), _EXPORT_AGAIN)
    if subject.undecodable:
        yield Defect(subject.undecodable, _EXPORT_AGAIN, subject.at())


@ADAPTER_RULES.rule("ADP005", "adapted-twice", _ERROR)
def check_adapted_twice(subject: AdapterSubject) -> Iterator[Defect]:
    """Two modules for the same weights.

    *What it checks*: no two names of the file mean the same module, as with and without
    `base_model.model.` in front.

    *Why it matters*: which of the two is applied depends on the engine and on their order.

    *How to fix*: remove one of them.
    """
    yield from _first_of(subject, _problems(subject, "twice"), "remove one of them")


@ADAPTER_RULES.rule("ADP017", "no-factors", _ERROR)
def check_no_factors(subject: AdapterSubject) -> Iterator[Defect]:
    """A weights file without any tensor.

    *What it checks*: whether the file holds a tensor at all.

    *Why it matters*: engines load such a file and answer as the base model does.

    *How to fix*: export the adapter again.
    """
    if not subject.adapter.file.tensors:
        message = "the file holds no tensors, expected LoRA factors"
        yield Defect(message, _EXPORT_AGAIN, subject.at())


@ADAPTER_RULES.rule("ADP018", "factor-transposed", _ERROR)
def check_factor_transposed(subject: AdapterSubject) -> Iterator[Defect]:
    """A factor whose two sides are swapped.

    *What it checks*: where the ranks of lora_A and lora_B contradict the config, whether they
    agree with it once the last two dimensions of a factor are swapped. Where the rank is as large
    as the width, nothing tells.

    *Why it matters*: A is [rank, in] and B is [out, rank] for every engine. MLX and some merge
    scripts write them the other way round, which engines refuse or misread.

    *How to fix*: transpose the factor.
    """
    found = _transposed(subject)
    if found:
        name, message = next(iter(found.items()))
        more = f" (and {len(found) - 1} more modules)" if len(found) > 1 else ""
        yield Defect(f"`{name}`: {message}{more}", "transpose the factor", subject.at(name))


def _problems(subject: AdapterSubject, kind: str) -> list[Problem]:
    return [problem for problem in subject.adapter.problems if problem.kind == kind]


def _first_of(
    subject: AdapterSubject, found: list[Problem], remedy: str | None
) -> Iterator[Defect]:
    """Yield one defect for all problems of a kind: the first, and how many more."""
    if found:
        first, more = found[0], len(found) - 1
        suffix = f" (and {more} more modules)" if more else ""
        yield Defect(f"`{first.module}`: {first.message}{suffix}", remedy, subject.at(first.module))


def _transposed(subject: AdapterSubject) -> dict[str, str]:
    """Return module → which of its factors is transposed, in words."""
    names = {problem.module for problem in _problems(subject, "rank")}
    modules = (module for module in subject.adapter.modules if module.name in names)
    return {module.name: text for module in modules if (text := _describe_transposed(module))}


def _describe_transposed(module: AdapterModule) -> str | None:
    """Return which factors have the rank at the other side; None unless that explains all."""
    a, b, rank = module.a, module.b, module.rank
    if a is None or b is None or module.parsed.row.layout.is_packed:
        return None
    turned = []
    for name, shape, side in (("A", a.shape, -2), ("B", b.shape, -1)):
        if shape[side] == rank:
            continue
        swapped = [*shape[:-2], shape[-1], shape[-2]]
        if swapped[side] != rank:
            return None
        turned.append(f"{name} is {list(shape)}, expected {swapped}")
    return f"{' and '.join(turned)}: the last two sizes are swapped"
