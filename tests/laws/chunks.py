"""Seeds in chunks: `make unit` and `make test` run the first, `make matrix` the rest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

_SCHEDULES = 4  # of a case, in `make test`


def most_in_matrix(chunks: Iterable[int]) -> list[Any]:
    """Return parameters of a property that is repeated over chunks of seeds: all but the first are marked `matrix`."""
    return [pytest.param(first, marks=pytest.mark.matrix if place else ()) for place, first in enumerate(chunks)]


def schedules(paths: Sequence[Path], all_of_them: int) -> list[Any]:
    """Return (path, seeds) of cases: each with four schedules, and with all others, marked `matrix`."""
    return [
        *(pytest.param(path, range(_SCHEDULES), id=path.stem) for path in paths),
        *(
            pytest.param(path, range(_SCHEDULES, all_of_them), id=f"{path.stem}-more", marks=pytest.mark.matrix)
            for path in paths
        ),
    ]
