"""A gateway and an agent in one process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from tests.ingest.agent.test_agent import World
from tests.support.gateways import certificates


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the fleet's certificates."""
    structlog.reset_defaults()
    return certificates(tmp_path_factory.mktemp("fleet"))


@pytest.fixture
def world(folder: Path) -> Iterator[World]:
    """Run a gateway that serves an agent until the end of the test."""
    yield (made := World(folder))
    made.close()
