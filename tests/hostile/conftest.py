"""A fleet whose gateway is hostile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from tests.hostile.hostile_gateway import HostileGateway
from tests.support.gateways import certificates


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the fleet's certificates."""
    structlog.reset_defaults()
    return certificates(tmp_path_factory.mktemp("fleet"))


@pytest.fixture
def gateway(folder: Path) -> Iterator[HostileGateway]:
    """Run a hostile gateway until the end of the test."""
    yield (made := HostileGateway(folder))
    made.close()
