"""Create databases of the shapes in `tests.support.schemas_made` on the stack's server; run commands that must
succeed."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from tailorbird.cli.app import app
from tests.integration.conftest import connection
from tests.support.schemas_made import SampleDatabase

Makes = Callable[[SampleDatabase], str]


@pytest.fixture
def made(stack: Any, unique: Callable[[str], str], request: pytest.FixtureRequest) -> Makes:
    """Create a database of a shape and return its URL; it is dropped at the end."""

    def make(shape: SampleDatabase) -> str:
        name = unique(shape.name)
        with connection() as connected, connected.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE `{name}` DEFAULT CHARSET utf8mb4")
            request.addfinalizer(lambda: dropped(name))
            cursor.execute(f"USE `{name}`")
            cursor.execute("SET foreign_key_checks = 0")
            for statement in shape.statements():
                cursor.execute(statement)
        return f"mysql://cdc@127.0.0.1:{os.environ['TAILORBIRD_PORT_MYSQL_SHOP']}/{name}"

    return make


def dropped(name: str) -> None:
    with connection() as connected, connected.cursor() as cursor:
        cursor.execute("SET foreign_key_checks = 0")
        cursor.execute(f"DROP DATABASE `{name}`")


def reported(*words: str) -> str:
    """Return the output of a command that must succeed."""
    result = CliRunner().invoke(app, [*words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output
