"""`tailorbird doctor` on real servers prints the GRANTs that a user lacks, and they suffice."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from tailorbird.cli.app import app

pytestmark = pytest.mark.integration


def said(file: object) -> tuple[int, dict[tuple[str, str], dict[str, str]]]:
    result = CliRunner().invoke(app, ["doctor", str(file), "--json"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    lines = [json.loads(line) for line in result.output.splitlines() if line.startswith("{")]
    return result.exit_code, {(line["subject"], line["check"]): line for line in lines}


def test_the_grants_that_are_printed_are_enough(capture: Callable[..., Any], stack: Any) -> None:
    """It reports faults and exits with 1; after the printed statements are run unchanged it reports none and exits with
    0.
    """
    captured = capture("t")
    captured.sql("CREATE TABLE t (code VARCHAR(9) PRIMARY KEY, v INT, up VARCHAR(9) COLLATE utf8mb4_general_ci)")
    user = f"u_{captured.name[-8:]}"
    addresses = stack.settings.addresses()
    text = (
        captured.file.read_text().replace("username: cdc", f"username: {user}").replace("password: cdc", "password: p")
    )
    joined = "SELECT a.code, b.v FROM shop.t a LEFT JOIN shop.t b ON b.code = a.up"
    text = text.replace("SELECT a.id FROM shop.t a, row_key: [id]", f"'{joined}', row_key: [code]")
    captured.file.write_text(
        text + f"hbase: {{thrift: '{addresses['thrift']}', zookeeper: '{addresses['zookeeper']}'}}\n"
        f"solr: {{url: '{addresses['solr']}'}}\n"
    )
    code, found = said(captured.file)
    assert code == 1
    assert found["source shop", "reachable"]["status"] == "fault"
    assert "Access denied" in found["source shop", "reachable"]["found"]
    admin = captured.sql
    try:
        # the loader may do everything but grant; the privilege is revoked below
        admin("UPDATE mysql.user SET Grant_priv = 'Y' WHERE user = 'app'", "FLUSH PRIVILEGES")
        admin(f"CREATE USER '{user}'@'%' IDENTIFIED WITH mysql_native_password BY 'p'")
        code, found = said(captured.file)
        assert code == 1
        grants = found["source shop", "grants"]
        assert grants["status"] == "fault"
        assert "REPLICATION SLAVE" in grants["found"]
        for statement in re.split(r"; ", grants["remedy"]):
            admin(statement)
        code, found = said(captured.file)
        assert [line for line in found.values() if line["status"] == "fault"] == []
        assert code == 0
        assert found["source shop", f"{captured.name}.t"]["status"] == "warning"  # the key's collation
        assert found["table wide", "collation"]["status"] == "warning"
        assert (
            ".t.code compares by utf8mb4_0900_ai_ci, which folds case and" in found["table wide", "collation"]["found"]
        )
        assert {found[place, "reachable"]["status"] for place in ("log", "hbase", "solr")} == {"ok"}
    finally:
        admin(f"DROP USER IF EXISTS '{user}'@'%'")
        admin("UPDATE mysql.user SET Grant_priv = 'N' WHERE user = 'app'", "FLUSH PRIVILEGES")


def test_unavailable_servers_are_named(capture: Callable[..., Any]) -> None:
    """Each server that does not answer is a separate fault, with its address."""
    captured = capture("t")
    text = captured.file.read_text()
    text = re.sub(r"port: \d+", "port: 1", text)
    text = re.sub(r"bootstrap_servers: '[^']*'", "bootstrap_servers: '127.0.0.1:1'", text)
    captured.file.write_text(
        text + "hbase: {thrift: '127.0.0.1:1', zookeeper: '127.0.0.1:1'}\nsolr: {url: 'http://127.0.0.1:1/solr'}\n"
    )
    code, found = said(captured.file)
    assert code == 1
    for subject in ("source shop", "log", "hbase", "solr"):
        assert found[subject, "reachable"]["status"] == "fault"
        assert "127.0.0.1:1" in found[subject, "reachable"]["found"]
        assert found[subject, "reachable"]["remedy"]
