"""Roles of Kafka clients: logins in the topology, and the grants that `tailorbird acls` prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cdc.model.errors import MissingSecret, TopologyError, UsageError
from cdc.process.file_topology import load_topology, read_file
from cdc.process.grants import grants
from cdc.topology.roles import ROLES
from tailorbird.cli.app import app

TOPOLOGY = """name: t
sources:
  shop: {type: mysql, hostname: 127.0.0.1, username: u, password: p, database: d, tables: [orders], server_id: 7}
  far: {type: mysql, hostname: 127.0.0.1, username: u, password: p, database: e, tables: [x], server_id: 8,
        agent: {names: [paris], connection: db}}
log:
  bootstrap_servers: kafka:9093
  security: {protocol: SASL_SSL, mechanism: SCRAM-SHA-512, roles: ROLES}
"""


def written(folder: Path, roles: str) -> str:
    file = folder / "t.yml"
    file.write_text(TOPOLOGY.replace("ROLES", roles), encoding="utf-8")
    return str(file)


def test_a_host_needs_only_the_secret_of_its_role(tmp_path: Path) -> None:
    """The secrets of other roles may be missing; a role without a login says so."""
    (tmp_path / "mine").write_text("s3cret\n", encoding="utf-8")
    roles = "{capture: {username: c, password: '${file:mine}'}, join: {username: j, password: '${file:other}'}}"
    file = written(tmp_path, roles)
    found = load_topology(file, "capture")
    security = found.log.brokers.security
    assert security is not None
    assert (security.username, security.password, security.mechanism) == ("c", "s3cret", "SCRAM-SHA-512")
    assert "s3cret" not in repr(found.log)
    with pytest.raises(MissingSecret, match=r"t\.yml:8: log\.security\.roles\.join\.password: file other"):
        load_topology(file, "join")
    with pytest.raises(UsageError, match="no login for the role indexer"):
        load_topology(file, "indexer")
    assert read_file(file).name == "t"  # `validate` needs no login


@pytest.mark.parametrize(
    ("roles", "why"),
    [
        ("{captures: {username: c, password: p}}", "role captures"),
        ("{capture: {username: c}}", "username without password"),
        ("{capture: {}}", "an incomplete login"),
        ("{capture: {certificate_file: c.pem, key_file: k.pem}}", "unknown key certificate_file"),
    ],
)
def test_a_wrong_role_is_refused(tmp_path: Path, roles: str, why: str) -> None:
    with pytest.raises(TopologyError, match=why):
        read_file(written(tmp_path, roles))


def test_acls_prints_all_grants_of_all_roles(tmp_path: Path) -> None:
    """As a table, as JSON, and as commands for the principals of the topology."""
    file = written(tmp_path, "{capture: {username: c, password: p}, join: {username: j, password: '${NOWHERE}'}}")
    found = CliRunner().invoke(app, ["acls", file, "--json"])
    shown = [json.loads(line) for line in found.stdout.splitlines()]
    topology = read_file(file)
    assert [(one["role"], one["name"], tuple(one["operations"])) for one in shown] == [
        (role, one.name, one.operations) for role in ROLES for one in grants(topology, role)
    ]
    assert {one["principal"] for one in shown if one["role"] in ("capture", "join")} == {"User:c", "User:join"}
    assert not [one for one in grants(topology, "capture") if "far" in one.name], "an agent's source"
    commands = CliRunner().invoke(app, ["acls", file, "--role", "capture", "--commands"]).stdout.splitlines()
    assert commands[0] == (
        "kafka-acls.sh --bootstrap-server kafka:9093 --command-config admin.properties --add --allow-principal "
        "'User:c' --operation Create --operation Read --operation Write --topic 't.shop.' "
        "--resource-pattern-type prefixed"
    )
    assert "signals" in CliRunner().invoke(app, ["acls", file, "--role", "capture"]).stdout
    assert CliRunner().invoke(app, ["acls", file, "--role", "boss"]).exit_code != 0


@pytest.mark.parametrize(
    ("roles", "options", "why", "granted"),
    [
        ("{capture: {username: c, password: p}}", [], "no login for the role gateway", []),
        ("{capture: {username: c, password: p}}", ["--role", "join"], "no login for the role join", []),
        ("{join: {username: j, password: '${NOWHERE}'}}", ["--role", "join"], "variable NOWHERE", []),
        ("{capture: {username: c, password: p}}", ["--role", "capture"], "", ["User:c"]),
    ],
)
def test_rights_are_granted_to_logins_of_the_topology_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, roles: str, options: list[str], why: str, granted: list[str]
) -> None:
    """Someone else may have the invented name of a role without a login. Nothing is granted before all are checked."""
    found = list[str]()
    monkeypatch.setattr("cdc.process.kafka_admin.allow", lambda brokers, principal, wanted: found.append(principal))
    done = CliRunner().invoke(app, ["acls", written(tmp_path, roles), "--apply", *options])
    assert (found, done.exit_code == 0) == (granted, bool(granted)), done.output
    assert why in str(done.exception or "")
    for principal in granted:
        assert f"granted to {principal}, the login of the role capture:" in done.stdout.splitlines()[0]
