"""Seeds in chunks: `make unit` runs the first, `make test` all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest


def most_long(chunks: Iterable[int]) -> list[Any]:
    """Return parameters of a property that is repeated over chunks of seeds: all but the first are marked `long`."""
    return [pytest.param(first, marks=pytest.mark.long) if place else first for place, first in enumerate(chunks)]


def schedules(paths: Sequence[Path], all_of_them: int) -> list[Any]:
    """Return (path, seeds) of cases: each with four schedules, and with all others, marked `long`."""
    few, long = 4, pytest.mark.long
    return [
        *(pytest.param(path, range(few), id=path.stem) for path in paths),
        *(pytest.param(path, range(few, all_of_them), id=f"{path.stem}-more", marks=long) for path in paths),
    ]
