"""Seeds in chunks: `make unit` runs the first, `make test` a few, `make matrix` the rest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

_UNIT, _TEST = 4, 12  # schedules of a case
_CHUNKS = 2  # chunks of seeds in `make test`


def most_long(chunks: Iterable[int]) -> list[Any]:
    """Return parameters of a property that is repeated over chunks of seeds: the first, the second marked `long`, the
    others `matrix`."""
    return [
        pytest.param(first, marks=() if place == 0 else pytest.mark.long if place < _CHUNKS else pytest.mark.matrix)
        for place, first in enumerate(chunks)
    ]


def schedules(paths: Sequence[Path], all_of_them: int) -> list[Any]:
    """Return (path, seeds) of cases: each with four schedules, with more, marked `long`, and all others, marked
    `matrix`."""
    long, matrix = pytest.mark.long, pytest.mark.matrix
    return [
        *(pytest.param(path, range(_UNIT), id=path.stem) for path in paths),
        *(pytest.param(path, range(_UNIT, _TEST), id=f"{path.stem}-more", marks=long) for path in paths),
        *(pytest.param(path, range(_TEST, all_of_them), id=f"{path.stem}-most", marks=matrix) for path in paths),
    ]
