"""What identifies an adapter: its numbers, not its name or its files.

Two adapters of the same content share one slot and one cache of prefixes, and one that is read
again from files that changed is found out.
"""

import struct
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

import numpy as np

from inkling_runtime.adapter.factors import SiteFactors
from inkling_runtime.adapter.sites import Site


class HashedFactors(Mapping[Site, SiteFactors]):
    """Factors that are hashed as they are read, so that what is loaded is what is hashed.

    Args:
        factors: read at most once per site and loading where they come from a file.
    """

    def __init__(self, factors: Mapping[Site, SiteFactors]) -> None:
        self._factors = factors
        self._digests: dict[Site, bytes] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Go to other ranks without the hashing: they need the factors alone."""
        return _unhashed, (self._factors,)

    def __getitem__(self, site: Site) -> SiteFactors:
        """Return the factors of a site."""
        pair = self._factors[site]
        self._digests[site] = _digest(site, pair)
        return pair

    def __iter__(self) -> Iterator[Site]:
        """Iterate over the sites."""
        return iter(self._factors)

    def __len__(self) -> int:
        """Return the number of sites."""
        return len(self._factors)

    def content_hash(self) -> str:
        """Return the hash of all sites, whatever their order; reads those not read yet."""
        for site in self:
            if site not in self._digests:
                self[site]
        whole = sha256()
        for site in sorted(self._digests):
            whole.update(self._digests[site])
        return whole.hexdigest()


def _unhashed(factors: Mapping[Site, SiteFactors]) -> Mapping[Site, SiteFactors]:
    return factors


def _digest(site: Site, factors: SiteFactors) -> bytes:
    """Return the hash of what a site computes: place, scaling, dtype, shapes and numbers."""
    head = f"{site} {factors.dtype} {factors.a.shape} {factors.b.shape}".encode()
    digest = sha256(struct.pack("<Qd", len(head), factors.scaling) + head)
    for array in (factors.a, factors.b):
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.digest()
