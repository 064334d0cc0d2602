"""Seeds in chunks: `make unit` has the first, `make test` all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def most_long(chunks: Iterable[int]) -> list[Any]:
    """Parameters of a law that is repeated over chunks of seeds: all but the first are marked `long`."""
    return [pytest.param(first, marks=pytest.mark.long) if place else first for place, first in enumerate(chunks)]
