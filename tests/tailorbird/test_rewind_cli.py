"""`tailorbird rewind` refuses what it cannot do before it asks Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cdc.model.errors import UsageError
from tailorbird.cli.app import app

TOPOLOGY = "topologies/shop.yml"


def refusal(*arguments: str) -> str:
    """Return the error of `tailorbird rewind` with these arguments."""
    with pytest.raises(UsageError) as error:
        CliRunner().invoke(app, ["rewind", *arguments], catch_exceptions=False)
    return str(error.value)


def test_several_positions_are_refused() -> None:
    for given in (["--to", "b.1:4", "--to-sequence", "1"], ["--before", "2026-01-01", "--to-sequence", "0"]):
        assert "several positions are given" in refusal(TOPOLOGY, "--source", "shop", *given)


def test_a_source_without_stored_positions_is_refused(tmp_path: Path) -> None:
    """Syslog messages cannot be received again."""
    file = tmp_path / "heard.yml"
    tables = "{messages: {append_only: true, watermark: 1m}}"
    listen = "{udp: 127.0.0.1:5514}"
    file.write_text(
        f"name: heard\nsources: {{sys: {{type: syslog, database: logs, listen: {listen}, tables: {tables}}}}}\n"
    )
    assert "source sys is of type syslog" in refusal(str(file))
