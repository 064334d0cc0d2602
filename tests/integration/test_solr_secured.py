"""A Solr with TLS and basic authentication: everything works with the credentials, and no output shows them."""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from benchmarks.index.load import Load, differences
from benchmarks.index.world import World
from indexer.solr.solr_http import SolrConnections
from tailorbird.devtools.stack.proc_stack import Stack
from tests.integration.solr_servers import Certificate, SolrServer, certificate

pytestmark = [pytest.mark.integration, pytest.mark.matrix]

USER, PASSWORD = "indexer", "correct horse: battery/staple"


@pytest.fixture(scope="module")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="module")
def server(stack: Stack, trusted: Certificate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SolrServer]:
    made = SolrServer(stack, tmp_path_factory.mktemp("secured"))
    made.secure(trusted, USER, PASSWORD)

    def answers() -> bool:
        url = f"https://127.0.0.1:{made.port}/solr/admin/info/system"
        try:
            return requests.get(url, auth=(USER, PASSWORD), verify=str(trusted.pem), timeout=5).ok
        except requests.RequestException:
            return False

    try:
        made.start(answers)
        yield made
    finally:
        made.stop()


def section(server: SolrServer, ca_file: Path | None, password: str = "${SOLR_PASSWORD}") -> str:
    trust = f", ca_file: '{ca_file}'" if ca_file else ""
    return f"{{url: 'https://127.0.0.1:{server.port}/solr', username: {USER}, password: '{password}'{trust}}}"


def test_an_index_with_tls_and_a_password(
    server: SolrServer, trusted: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """apply, the indexer, reindex and status present the credentials; no output and no log shows them."""
    monkeypatch.setenv("SOLR_PASSWORD", PASSWORD)
    log, said = tmp_path / "indexer.log", ""
    with World(solr=section(server, trusted.pem)) as world:
        world.start("--index", "wide", log=log)
        load = Load(world, keys=500)
        load.write_until_accepted(400)
        load.write_until_accepted(200)
        world.wait_visible(world.solr(), seconds=90)
        assert differences(world, load) == []
        for command in (["apply"], ["index", "reindex"], ["status"], ["index", "reindex", "--finish"]):
            done = subprocess.run(
                [sys.executable, "-m", "tailorbird", *command, str(world.file)],
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert done.returncode == 0, (command, done.stderr)
            said += done.stdout + done.stderr
        load.write_until_accepted(100)
        world.wait_visible(world.solr(), seconds=90)
        assert differences(world, load) == []
    assert "indexing" in log.read_text()
    hidden = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    for text in (log.read_text(), said):
        assert PASSWORD not in text
        assert hidden not in text


@pytest.mark.parametrize(
    ("trust", "password", "reason"),
    [(True, "wrong", f"refuses user {USER}: HTTP 401"), (False, PASSWORD, "CERTIFICATE_VERIFY_FAILED")],
)
def test_a_refused_login_is_reported_with_its_cause(
    server: SolrServer, trusted: Certificate, trust: bool, password: str, reason: str
) -> None:
    """A wrong password or an untrusted certificate: one line without the password, and the remedy."""
    from cdc.model.errors import Retriable
    from cdc.topology.topology import Solr

    solr = Solr(
        url=f"https://127.0.0.1:{server.port}/solr",
        username=USER,
        password=password,
        ca_file=str(trusted.pem) if trust else None,
    )
    with pytest.raises(Retriable, match=reason) as refused:
        SolrConnections(solr, timeout=10).request("GET", "/admin/info/system")
    assert PASSWORD not in str(refused.value)
    assert "wrong" not in str(refused.value)
