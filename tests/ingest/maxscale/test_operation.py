"""The commands `serve maxscale` and `maxscale-users`: accounts, and refusals before anything is served."""

from __future__ import annotations

import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from cdc.model.errors import UsageError
from cdc.process.file_topology import load_topology
from ingest.fleet.identity import FleetIdentity
from ingest.maxscale.file_users import UsersFile
from ingest.maxscale.run_maxscale import CdcOptions, run
from ingest.maxscale.tcp_tls import tls_context
from ingest.maxscale.users import check_of, service_users
from tailorbird.web.fleet.file_ca import init, issue
from tests.support.cdc_served import served
from tests.support.changes_made import MemoryChanges, SourceLog, schema_of, topology_text
from tests.support.commands import tailorbird


@pytest.fixture
def topology(tmp_path: Path) -> str:
    file = tmp_path / "t.yml"
    file.write_text(topology_text("shop"))
    return str(file)


def test_users_are_added_listed_and_removed(topology: str, tmp_path: Path) -> None:
    """The file has MaxScale's format and is readable by its owner only; a running server sees its changes; no password
    is printed."""
    file = tmp_path / "cdcusers"
    where = (topology, "--users", str(file))
    known = UsersFile(file)
    assert known.users() == {}
    for name, password in (("foobar", "foopasswd"), ("anna", "x"), ("foobar", "other"), ("foobar", "foopasswd")):
        done = tailorbird("maxscale-users", "add", name, *where, given=f"{password}\n")
        assert (done.returncode, password in done.stderr + done.stdout) == (0, False)
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(known.users()) == ["foobar", "anna"]
    assert tailorbird("maxscale-users", "rm", "anna", *where).returncode == 0
    assert tailorbird("maxscale-users", "list", *where).stdout.split() == ["foobar"]
    again = tailorbird("maxscale-users", "rm", "anna", *where)
    assert (again.returncode, "has no user anna" in again.stderr) == (2, True)
    assert list(known.users()) == ["foobar"]


def test_without_a_file_the_service_user_may_log_in(topology: str, tmp_path: Path) -> None:
    """As in seed 003: the accounts of the served sources are valid while there is no `cdcusers` file."""
    file = tmp_path / "cdcusers"
    sources = load_topology(topology).sources
    [source] = sources.values()
    known = UsersFile(file, service_users(sources.values()))
    assert known.users() == {source.username: check_of(source.username, source.password)}
    known.write({"anna": check_of("anna", "x")})
    assert list(known.users()) == ["anna"]
    file.write_text("")
    assert known.users() == {}
    file.unlink()
    assert list(known.users()) == [source.username]
    # one name with two passwords is no account; sources without an account have none
    other = replace(source, password="other")
    assert service_users([source, other, replace(source, username="", password="")]) == {}


def test_invalid_configurations_are_refused_at_start(topology: str, tmp_path: Path) -> None:
    """An unencrypted login, half a certificate, no users, an unknown source."""
    users, empty = tmp_path / "cdcusers", tmp_path / "empty"
    empty.touch()
    for options, said in [
        (CdcOptions(listen="0.0.0.0:4001", users=users), "without TLS"),
        (CdcOptions(listen="4001", users=users), "--listen 4001"),
        (CdcOptions(certificate=users, users=users), "needs certificate and key"),
        (CdcOptions(certificate=users, key=users, users=users), "cdcusers"),
        (CdcOptions(users=empty), "no user"),
        (CdcOptions(users=users, sources=("x",)), "has no source x"),
    ]:
        with pytest.raises(UsageError, match=said):
            run(topology, options)


def test_it_serves_over_tls(tmp_path: Path) -> None:
    """A TLS client that trusts its authority gets the same answers."""
    init(tmp_path / "authority", "acme")
    issue(tmp_path / "authority", FleetIdentity("acme", "gateways", "g1"), tmp_path / "g1", hosts=("127.0.0.1",))
    context = tls_context(tmp_path / "g1" / "cert.pem", tmp_path / "g1" / "key.pem")
    trusted = ssl.create_default_context(cafile=str(tmp_path / "g1" / "ca.pem"))
    log = MemoryChanges()
    source = SourceLog(log)
    source.columns(schema_of())
    source.transaction(("c", None, {"id": 7}))
    source.commit()
    with served(log, tls=context) as server, server.client() as client:
        client.socket = trusted.wrap_socket(client.socket, server_hostname="127.0.0.1")
        client.open().request("REQUEST-DATA d.t\n")
        assert client.objects(2)[1]["id"] == 7
