"""Compared: compares a request with the tools of an index by their embedding vectors.

Of thousands of tools only those that stand out count, so not all long vectors are read: estimates from binary codes
(see `binary_codes`) select candidates, which are compared in full. The comparison uses visible tools only: hidden ones
do not change any digit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from pegboard.discovery.search.binary_codes import BinaryCodes
from pegboard.discovery.search.likeness import ALIKE, Standing, by_chance, deviations_of
from pegboard.discovery.search.ranking import Vector

Places = NDArray[np.int64]

_READ_ALL = 4_000_000  # numbers below which reading all is faster than estimating
_AT_ONCE = 64
_MOST = 0.75  # share of the rows above which reading all is faster
_SAMPLE = 512  # tools in the sample for judging the others
# One in 700 of the tools that barely stand out is missed, and fewer of those that stand out more.
_ERRORS = 3.0
_FEW = 0.2  # share of candidates above which all tools are compared in full


class Compared(Protocol):
    """The comparison of one request with each tool of an index.

    `knowledge` is how well the embedder knows meanings, 0 … 1; 0 if unknown.
    """

    @property
    def knowledge(self) -> float: ...

    def standing(self, seen: Places) -> Standing:
        """Return by how many deviations each visible tool stands out."""
        ...

    def deviations(self, seen: Places) -> Vector:
        """Return by how many deviations each visible tool is above the median."""
        ...


class ToolVectors:
    """The vectors of all tools of an index, one row each, in order; of length 1, or all zeros."""

    def __init__(self, matrix: Vector) -> None:
        self.matrix = matrix
        self.codes: BinaryCodes | None = None

    @property
    def wants_codes(self) -> bool:
        """Whether there are enough numbers for estimates to save time."""
        return self.codes is None and self.matrix.size > _READ_ALL

    def coding(self, centre: Vector) -> Iterator[None]:
        """Compute the codes for estimates, a few in each step; until they are complete all vectors are read.

        Args:
            centre: the average vector of the model's texts; not computed from the tools.
        """
        codes = BinaryCodes(self.matrix, centre=centre)
        yield from codes.steps()
        self.codes = codes

    def beside(self, request: Vector, *, knowledge: float = 0.0) -> ComparedVectors:
        """Return the comparison with a request, a vector of length 1, by an embedder of known quality.

        Raises:
            ValueError: its dimension differs from the tools'.
        """
        if request.shape != self.matrix.shape[1:]:
            raise ValueError(f"The request has {len(request)} numbers, the tools have {self.matrix.shape[1]}.")
        return ComparedVectors(tools=self, request=request, knowledge=knowledge)

    def cosines(self, request: Vector, places: Places) -> Vector:
        """Return the cosines of a request and the tools at these places."""
        # Not `@`: for a matrix and one row its threads take four times the CPU time, mostly waiting.
        if len(places) > _MOST * len(self.matrix):
            return np.vecdot(self.matrix, request)[places]
        cosines = np.empty(len(places), dtype=np.float32)
        rows = np.empty((_AT_ONCE, len(request)), dtype=np.float32)
        # In batches: copying megabytes each time costs more than the comparison.
        for start in range(0, len(places), _AT_ONCE):
            some = places[start : start + _AT_ONCE]
            copied = np.take(self.matrix, some, axis=0, out=rows[: len(some)], mode="clip")
            np.vecdot(copied, request, out=cosines[start : start + len(some)])
        return cosines


class Cosines(Struct, frozen=True, kw_only=True):
    """Precomputed cosines, one for each tool of the index."""

    known: Vector
    knowledge: float = 0.0

    def standing(self, seen: Places) -> Standing:
        """See `Compared`."""
        return _standing(self.deviations(seen))

    def deviations(self, seen: Places) -> Vector:
        """See `Compared`."""
        return deviations_of(self.known[seen])


class ComparedVectors(Struct, frozen=True, kw_only=True):
    """Cosines that are computed on demand, as few as needed."""

    tools: ToolVectors
    request: Vector
    knowledge: float = 0.0

    def standing(self, seen: Places) -> Standing:
        """See `Compared`."""
        codes = self.tools.codes
        if codes is not None and len(seen) * len(self.request) > _READ_ALL:
            standing = self._standing_out(seen, codes)
            if standing is not None:
                return standing
        return _standing(self.deviations(seen))

    def deviations(self, seen: Places) -> Vector:
        """See `Compared`."""
        return deviations_of(self.tools.cosines(self.request, seen))

    def _standing_out(self, seen: Places, codes: BinaryCodes) -> Standing | None:
        """Return the same in two steps; `None` if the estimates leave too many candidates.

        The deviations of tools that do not stand out are estimates.
        """
        estimates = codes.estimates(self.request)[seen]
        drawn = np.arange(0, len(seen), max(len(seen) // _SAMPLE, 1))
        sample, guessed = self.tools.cosines(self.request, seen[drawn]), estimates[drawn]
        errors = guessed - sample
        # The median of all estimates, corrected by the sample's estimation error.
        middle = float(np.median(estimates) - np.median(guessed) + np.median(sample))
        spread = max(float(estimates.var() - guessed.var() + sample.var()), 0.0) ** 0.5
        least = middle + spread * by_chance(len(seen))
        near = np.flatnonzero(estimates > least + float(errors.mean()) - _ERRORS * float(errors.std()))
        if spread <= ALIKE or len(near) > _FEW * len(seen):
            return None
        cosines = self.tools.cosines(self.request, seen[near])
        beyond = np.zeros(len(seen), dtype=np.float32)
        beyond[near] = np.maximum(cosines - least, 0) / spread
        deviations = ((estimates - float(errors.mean()) - middle) / spread).astype(np.float32)
        deviations[near] = (cosines - middle) / spread
        return Standing(deviations=deviations, beyond=beyond)


def _standing(deviations: Vector) -> Standing:
    return Standing(deviations=deviations, beyond=np.maximum(deviations - by_chance(len(deviations)), 0))
