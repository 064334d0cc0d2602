"""The reference application: make a binlog searchable in Solr."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest
import requests

from ingest.binlog.transports.mysql_transport import MysqlTransport
from ingest.binlog.transports.uri import ServerAddress, parse_uri
from tailorbird.devtools.stack.proc_stack import Stack
from tailorbird.provision.file_configset import install_configset
from tailorbird.provision.solr_admin import SolrAdmin

pytestmark = pytest.mark.integration
ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "fulltext.py"


@pytest.fixture
def collection(stack: Stack, unique: Callable[[str], str]) -> Iterator[str]:
    """The URL of a collection for the test."""
    url = f"http://127.0.0.1:{os.environ['TAILORBIRD_PORT_SOLR']}/solr"
    admin = SolrAdmin(url, install=install_configset)
    name = unique("fulltext")
    admin.create(name)
    yield f"{url}/{name}"
    admin.remove(name)


def found(url: str, query: str) -> set[str]:
    parameters: dict[str, Any] = {"q": query, "fl": "_id", "rows": 100, "wt": "json", "fq": "_kind:row"}
    answer = requests.get(f"{url}/select", params=parameters, timeout=30)
    answer.raise_for_status()
    return {document["_id"] for document in answer.json()["response"]["docs"]}


def test_words_of_rows_are_found_and_those_of_old_rows_are_not(
    stack: Stack, collection: str, unique: Callable[[str], str]
) -> None:
    """Inserted words are found, updated and deleted ones are not, and a second full read changes nothing."""
    port = int(os.environ["TAILORBIRD_PORT_MYSQL_SHOP"])
    database = unique("texts")
    uri = f"mysql://cdc:cdc@127.0.0.1:{port}?follow=0"
    address = parse_uri(uri)
    assert isinstance(address, ServerAddress)
    start = MysqlTransport(address).head()
    with (
        pymysql.connect(host="127.0.0.1", port=port, user="app", password="app", autocommit=True) as session,
        session.cursor() as cursor,
    ):
        cursor.execute(f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
        cursor.execute(f"CREATE TABLE {database}.book (id INT PRIMARY KEY, title VARCHAR(80), body TEXT, cover BLOB)")
        cursor.execute(
            f"INSERT INTO {database}.book VALUES (1, 'Tailorbirds', 'stitch leaves', x'00FF'), "
            "(2, 'Weavers', 'tie grass', NULL)"
        )
        cursor.execute(f"UPDATE {database}.book SET body='sew leaves' WHERE id=1")
        cursor.execute(f"UPDATE {database}.book SET id=3 WHERE id=2")
        cursor.execute(f"INSERT INTO {database}.book VALUES (4, 'Gone', 'soon forgotten', NULL)")
        cursor.execute(f"DELETE FROM {database}.book WHERE id=4")
    for _ in range(2):
        command = [sys.executable, str(EXAMPLE), uri, collection, str(start)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        partition_ledger = f"{database}.book"
        assert found(collection, "text:sew") == {f"{partition_ledger}:1"}
        assert found(collection, "text:stitch") == set()
        assert found(collection, "text:grass") == {f"{partition_ledger}:3"}
        assert found(collection, "text:forgotten") == set()
        assert found(collection, f'table:"{partition_ledger}"') == {f"{partition_ledger}:1", f"{partition_ledger}:3"}


def test_the_example_stays_small() -> None:
    """The reference application has at most a hundred lines."""
    assert len(EXAMPLE.read_text().splitlines()) <= 100
