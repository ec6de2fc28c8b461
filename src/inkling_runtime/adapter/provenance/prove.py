"""The proof of a written adapter: it is read back and held against what it was made from.

Nothing is written here, and nothing is believed that was in memory while it was written but the
digests of the source's bytes.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np

from inkling_runtime.adapter.adapter import A_SUFFIX, B_SUFFIX, module_of, read_adapter
from inkling_runtime.adapter.arrays import iter_blocks
from inkling_runtime.adapter.comparison import Aligned
from inkling_runtime.adapter.convert.plan import Conversion
from inkling_runtime.adapter.difference import Distance
from inkling_runtime.adapter.moves import Array, Read, iter_nodes
from inkling_runtime.adapter.open_files import OpenFiles
from inkling_runtime.adapter.outputs import copied_runs
from inkling_runtime.adapter.provenance.as_planned import require_as_planned, unproven
from inkling_runtime.adapter.provenance.deltas import (
    Expectation,
    is_projection,
    is_same_by_moves,
    pairs_of,
    prove_delta,
)
from inkling_runtime.adapter.provenance.proven import (
    Account,
    Action,
    Proof,
    Proven,
    Verification,
    weakest,
)
from inkling_runtime.adapter.worker_threads import do_tasks

Progress = Callable[[int], None]

_ROUNDING = ("scale", "cast")
"""Verbs of moves that round each element once."""


def bytes_to_prove(conversion: Conversion, verification: Verification) -> int:
    """Return how many bytes of the result a proof looks at."""
    names = _modules_to_prove(conversion, verification)
    return sum(
        output.spec.nbytes for output in conversion.outputs if module_of(output.spec.name) in names
    )


def _modules_to_prove(conversion: Conversion, verification: Verification) -> set[str]:
    if verification is Verification.NONE:
        return set()
    return {
        module_of(output.spec.name)
        for output in conversion.outputs
        if verification is Verification.ALL or copied_runs(output.array) is None
    }


def prove(
    conversion: Conversion,
    account: Account,
    folder: Path,
    digests: Mapping[str, str],
    verification: Verification,
    progress: Progress = lambda nbytes: None,
) -> Proof:
    """Return what is shown of each module of a written adapter.

    Args:
        conversion: the plan that was executed.
        account: of what it does.
        folder: what was written.
        digests: of each tensor's bytes, as they were written.
        verification: what to prove.
        progress: is told the bytes of the result that are done, `bytes_to_prove` in all.

    Raises:
        InklingError: something is not what it should be. Names it, with both values.
    """
    if verification is Verification.NONE:
        names = sorted({module_of(output.spec.name) for output in conversion.outputs})
        return Proof(dict.fromkeys(names, Proven.NOTHING))
    with OpenFiles() as files:
        prover = _Prover(conversion, account, folder, digests, verification, files)
        return prover.prove(progress)


class _Prover:
    """One proof. What is already looked at is kept, because sites share tensors."""

    def __init__(
        self,
        conversion: Conversion,
        account: Account,
        folder: Path,
        digests: Mapping[str, str],
        verification: Verification,
        files: OpenFiles,
    ) -> None:
        self._conversion = conversion
        self._action = account.action
        self._result = read_adapter(folder, conversion.dialect.name)
        require_as_planned(conversion, self._result)
        self._digests = digests
        self._verification = verification
        self._files = files
        self._arrays = {output.spec.name: output.array for output in conversion.outputs}
        self._read_back: set[str] = set()
        is_merge = account.action is Action.MERGE
        spec = conversion.spec
        self._expectation = Expectation(
            conversion.pairs if is_merge else pairs_of(conversion.source, spec),
            pairs_of(self._result, spec),
            conversion.options,
            spec,
        )

    def prove(self, progress: Progress) -> Proof:
        """Return what is shown of each module."""
        left = dict.fromkeys(_modules_to_prove(self._conversion, self._verification), True)
        shown: dict[str, list[Proven]] = {module.name: [] for module in self._result.modules}
        modules_of = self._modules_by_site()

        def prove_site(aligned: Aligned) -> tuple[Proven, list[str]]:
            names = modules_of.get(str(aligned.site), [])
            proven = self._prove_site(aligned, names)
            for name in names:
                if left.pop(name, False):
                    progress(self._nbytes_of(name))
            return proven, names

        for proven, names in do_tasks(self._expectation.sites(), prove_site):
            for name in names:
                shown[name].append(proven)
        return Proof({name: weakest(found) for name, found in sorted(shown.items())})

    def _modules_by_site(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for module in self._result.modules:
            for site in module.sites:
                found.setdefault(str(site), []).append(module.name)
        return found

    def _nbytes_of(self, module: str) -> int:
        tensors = self._result.file.tensors
        return sum(tensors[module + end].nbytes for end in (A_SUFFIX, B_SUFFIX))

    def _prove_site(self, aligned: Aligned, modules: list[str]) -> Proven:
        names = [name + end for name in modules for end in (A_SUFFIX, B_SUFFIX)]
        tensors = [name for name in names if name in self._arrays]
        arrays = [self._arrays[name] for name in tensors]
        if not aligned.has_same_widths:
            raise unproven(f"the widths of `{aligned.site}` are other than the source's")
        is_copied = all(copied_runs(array) is not None for array in arrays)
        if is_copied and is_same_by_moves(aligned, self._arrays):
            if self._verification is Verification.COMPUTED:
                return Proven.NOTHING
            self._require_bytes(tensors)
            return Proven.BYTES
        if _has_verb(arrays, ("mix",)):
            self._require_re_evaluated(tensors)
            self._require_projection(aligned)
            return Proven.RE_EVALUATED
        return self._prove_delta(aligned, tensors, may_round=_has_verb(arrays, _ROUNDING))

    def _prove_delta(self, aligned: Aligned, tensors: list[str], *, may_round: bool) -> Proven:
        proven, distance = prove_delta(aligned, self._expectation, self._files, may_round=may_round)
        if proven is Proven.NOTHING:
            raise unproven(
                f"the delta of `{aligned.site}` {_apart(distance, self._conversion.source.path)}, "
                "expected the same" + (" but for one rounding" if may_round else "")
            )
        if proven is not Proven.BYTES:
            self._require_bytes(tensors)
        return weakest([proven, Proven.RE_EVALUATED]) if self._action is Action.MERGE else proven

    def _require_projection(self, aligned: Aligned) -> None:
        """Require that a delta of lower rank is a part of the source's, if there is one source."""
        if self._action is Action.RESIZE and not is_projection(aligned, self._files):
            raise unproven(
                f"the delta of `{aligned.site}` is no part of that of "
                f"`{self._conversion.source.path}`, expected its best approximation"
            )

    def _require_bytes(self, tensors: Iterable[str]) -> None:
        """Require that the file holds the bytes that were written."""
        names = [name for name in tensors if name not in self._read_back]
        weights = self._result.file
        for name in names:
            read = Read(weights.path_of(name), weights.tensors[name])
            digest = _hash_array(read, self._files)
            if digest != self._digests[name]:
                raise unproven(
                    f"tensor `{name}` has the SHA-256 {digest[:16]}… when it is read back, "
                    f"expected {self._digests[name][:16]}…, that of the bytes it was made of"
                )
        self._read_back.update(names)

    def _require_re_evaluated(self, tensors: Iterable[str]) -> None:
        """Require that the file holds what the plan gives once more."""
        for name in [name for name in tensors if name not in self._read_back]:
            again = _hash_array(self._arrays[name], self._files)
            if again != self._digests[name]:
                raise unproven(
                    f"tensor `{name}` has the SHA-256 {again[:16]}… when it is computed again, "
                    f"expected {self._digests[name][:16]}… as the first time"
                )
            self._require_bytes([name])


def _hash_array(array: Array, files: OpenFiles) -> str:
    digest = hashlib.sha256()
    for block in iter_blocks(array, files):
        digest.update(memoryview(block.reshape(-1).view(np.uint8).data))
    return digest.hexdigest()


def _apart(distance: Distance, source: Path) -> str:
    if distance.relative is None:
        return f"holds NaN or infinity, and other numbers than that of `{source}`"
    return f"is {distance.relative:.3g} away from that of `{source}`, relative to the larger one"


def _has_verb(arrays: Iterable[Array], verbs: tuple[str, ...]) -> bool:
    return any(node.verb in verbs for array in arrays for node in iter_nodes(array))
