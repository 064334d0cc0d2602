"""What the indexer makes of OpenSearch's responses, and the mapping of every field type. No server is needed."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from cdc.model.errors import Retriable, TopologyError, UsageError
from cdc.topology.reader import read_topology
from cdc.topology.topology import OpenSearch
from indexer.index.mapping import CONVERSIONS, Document, Field
from indexer.index.processor import RefusedDocument
from indexer.opensearch.conditions import WriteNumber, condition_of, token_of
from indexer.opensearch.mappings import KEY, document_of, id_of, known_types, new_mapping, properties_of, source_of
from indexer.opensearch.opensearch_collection import OpenSearchCollection
from tailorbird.web.dashboard.view import choose_pages
from tests.support.gateways import certificates


class Answers(BaseHTTPRequestHandler):
    """Answers each request with the next status and body."""

    left: ClassVar[list[tuple[int, Any]]] = []
    paths: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.paths.append(self.path)
        status, body = self.left.pop(0)
        self.send_response(status)
        content = json.dumps(body).encode()
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


@contextmanager
def answering(
    *answers: tuple[int, Any], tls: ssl.SSLContext | None = None, ca_file: str | None = None
) -> Iterator[OpenSearchCollection]:
    Answers.left, Answers.paths = list(answers), []
    server = HTTPServer(("127.0.0.1", 0), Answers)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}"
    target = OpenSearch(url=url, username="me", password="secret", ca_file=ca_file)
    try:
        with closing(OpenSearchCollection(target, "c", commit_within=1, timeout=5)) as collection:
            yield collection
    finally:
        server.shutdown()
        server.server_close()


def items(*statuses: int) -> dict[str, Any]:
    reasons = {"error": {"type": "some_exception", "reason": "r", "caused_by": {"reason": "deeper"}}}
    return {"items": [{"index": {"status": one, **({} if one < 300 else reasons)}} for one in statuses]}


def rows(number: int) -> list[Document]:
    return [{"_id": f"{n:02x}", "_fence": 2, "_kind": "row"} for n in range(number)]


def test_each_document_has_its_outcome() -> None:
    """A stale version is accepted; what is refused for its content is named, with all reasons."""
    with answering((200, items(201, 409, 400, 200))) as collection:
        assert collection.post(rows(4)) == [RefusedDocument(position=2, reason="OpenSearch: r: deeper")]
        assert "require_alias=true" in Answers.paths[0]


@pytest.mark.parametrize("status", [429, 503, 403, 500])
def test_a_busy_server_is_asked_again(status: int) -> None:
    """Back-pressure, full disks and failures become no dead letters, whether of a document or of the request."""
    with answering((200, items(201, status))) as collection, pytest.raises(Retriable, match=f"HTTP {status}"):
        collection.post(rows(2))
    with (
        answering((status, {"error": {"reason": "r"}})) as collection,
        pytest.raises(Retriable, match=f"HTTP {status}"),
    ):
        collection.post(rows(2))


def test_refused_credentials_are_named_without_the_password() -> None:
    """It is the topology that must be corrected."""
    with answering((401, {})) as collection, pytest.raises(Retriable) as refused:
        collection.post(rows(1))
    assert "refuses user me" in str(refused.value)
    assert "secret" not in str(refused.value)


def test_tls_trusts_the_named_certificate_only(tmp_path: Path) -> None:
    """The server's certificate is checked, against `ca_file` if there is one."""
    made = certificates(tmp_path) / "gateway"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made / "cert.pem", made / "key.pem")
    with answering((200, items(201)), tls=context) as collection, pytest.raises(Retriable, match="does not answer"):
        collection.post(rows(1))
    with answering((200, items(201)), tls=context, ca_file=str(made / "ca.pem")) as collection:
        assert collection.post(rows(1)) == []
    with pytest.raises(UsageError, match=r"opensearch\.ca_file"), answering(tls=context, ca_file="nowhere.pem"):
        pass


def test_a_request_that_is_too_long_is_halved() -> None:
    """A document that is too long alone is refused; the others are stored."""
    too_long = (413, {"error": "too long"})
    with answering(too_long, (200, items(201)), too_long, (200, items(201)), too_long) as collection:
        assert [one.position for one in collection.post(rows(3))] == [2]


def test_shards_that_do_not_refresh_hold_a_barrier_back() -> None:
    """A barrier is posted only after every copy of every shard shows the rows before it."""
    barrier: Document = {"_id": "barrier-0", "_fence": 4, "_kind": "barrier"}
    with answering((200, {"_shards": {"failed": 1}})) as collection, pytest.raises(Retriable, match="refresh"):
        collection.post([barrier])
    assert Answers.paths == ["/c/_refresh"]


TOPOLOGY = """
name: t
foreign_tables: {people: {table: people, fields: {name: {source: "info:name", type: string}}}}
indexes: {people: {table: people, type: %s}}
dashboards: {people: {index: people, columns: [name]}}
"""


def test_a_dashboard_over_an_index_in_opensearch_has_no_page() -> None:
    """Pages query Solr, programs search both; the message names the index, its engine and what is possible."""
    solr = read_topology(TOPOLOGY % "solr", file="t.yml", environ={})
    assert [one.name for one in choose_pages(solr, "people")] == ["people"]
    searched = read_topology(TOPOLOGY % "opensearch", file="t.yml", environ={})
    assert (list(searched.dashboards), list(searched.pages)) == (["people"], [])
    for name in ("people", None):
        with pytest.raises(UsageError, match="OpenSearch"):
            choose_pages(searched, name)
    panels = TOPOLOGY.replace("columns: [name]", "panels: [{number: count}]")
    with pytest.raises(TopologyError) as refused:
        read_topology(panels % "opensearch", file="t.yml", environ={})
    said = "t.yml:5: dashboards.people.panels: index people is in OpenSearch, which pages cannot read"
    assert str(refused.value).startswith(said)
    with pytest.raises(TopologyError, match="elasticsearch"):
        read_topology(TOPOLOGY % "elasticsearch", file="t.yml", environ={})


def test_every_field_type_has_a_mapping_that_is_read_back() -> None:
    """The type, and whether it takes several values, are what `plan` and later layouts compare."""
    wanted = [
        Field(name=f"f_{kind}_{many}", type=kind, stored=True, many=many)
        for kind in CONVERSIONS
        for many in (True, False)
    ]
    found = known_types(properties_of(wanted))
    assert found == {one.name: (one.type, one.many) for one in wanted}
    assert KEY not in known_types(new_mapping()["properties"])


@pytest.mark.parametrize("key", ["00ff", "x" * 512, "x" * 513, "é" * 400])
def test_keys_of_any_length_have_an_id(key: str) -> None:
    """OpenSearch refuses an id of more than 512 bytes; the key itself stays readable."""
    assert len(id_of(key).encode()) <= 512
    assert (id_of(key) == key) == (len(key.encode()) <= 512)
    document: Document = {"_id": key, "_fence": 3, "n": [1, 2], "_version_": 7}
    assert document_of(source_of(document)) == {"_id": key, "_fence": 3, "n": [1, 2]}


def test_a_condition_is_one_number() -> None:
    """`_version_` names one write of a document; -1 is none."""
    for condition in (WriteNumber(0, 1), WriteNumber(2**43, 900)):
        assert condition_of({"_version_": token_of(condition)}) == condition
    assert condition_of({"_version_": -1}) is None
