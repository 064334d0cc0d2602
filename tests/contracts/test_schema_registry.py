"""What a schema registry does for `export --format debezium-avro`: the one in memory, and Apicurio's (matrix).

Confluent's own deserializer reads the records."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from cdc.model.artefacts import cache_folder
from cdc.model.errors import Fatal, Retriable, UsageError
from cdc.model.schema import Column, TableSchema
from ingest.export.cuts import ExportCut
from ingest.export.kafka_registry import Registry, RegistryRecords, registry_at
from ingest.export.run_export import ExportOptions, sinks
from tailorbird.devtools.stack.proc_tools import find_java
from tailorbird.devtools.stack.progress import silent
from tests.cdc.test_formats import event
from tests.support.changes_made import schema_of, topology_named
from tests.support.registries import MemoryRegistry, apicurio

_KINDS = ["memory", pytest.param("apicurio", marks=[pytest.mark.matrix, pytest.mark.timeout(400)])]


@pytest.fixture(params=_KINDS, scope="module")
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Serve a registry of each kind."""
    if request.param == "memory":
        with MemoryRegistry().served() as address:
            yield address
        return
    cache = cache_folder(os.environ).absolute()
    with apicurio(cache, find_java(cache, os.environ, silent)) as address:
        yield address


@pytest.fixture
def unique_topic(unique: Callable[[str], str]) -> str:
    """Return the name of a topic that no other test has."""
    return f"{unique('avro')}.d.t"


def cut(schema: TableSchema, *rows: dict[str, Any]) -> ExportCut:
    return ExportCut(schema=schema, events=tuple(event("c", None, row) for row in rows), next={0: 1})


def read(url: str, topic: str, records: list[tuple[bytes | None, bytes | None]]) -> list[tuple[Any, Any]]:
    """Return keys and values as Confluent's deserializer does."""
    with SchemaRegistryClient({"url": url}) as client:
        reader = AvroDeserializer(client)

        def of(data: bytes | None, part: MessageField) -> Any:
            return None if data is None else reader(data, SerializationContext(topic, part))

        return [(of(key, MessageField.KEY), of(value, MessageField.VALUE)) for key, value in records]


def test_records_are_readable_with_the_registry_alone(url: str, unique_topic: str) -> None:
    """Keys, values, tombstones and TRUNCATE; a second exporter gets the same ids."""
    schema = schema_of(name="varchar(20)", paid="decimal(10,2)")
    rows = {"id": 1, "name": "é", "paid": "12.30"}, {"id": 2, "name": None, "paid": None}
    deleted, emptied = event("d", rows[0], None), event("t", None, None)
    changes = replace(cut(schema, *rows), events=(*cut(schema, *rows).events, deleted, emptied))
    records = list(RegistryRecords(Registry(url=url), unique_topic)(changes, "shop"))
    assert records == list(RegistryRecords(Registry(url=url), unique_topic)(changes, "shop"))
    found = read(url, unique_topic, records)
    assert [key for key, _ in found] == [{"id": 1}, {"id": 2}, {"id": 1}, {"id": 1}, None]
    assert [value and (value["op"], value["source"]["name"]) for _, value in found] == [
        ("c", "shop.s"), ("c", "shop.s"), ("d", "shop.s"), None, ("t", "shop.s"),
    ]  # fmt: skip
    assert [str(value["after"]["paid"]) for _, value in found[:2]] == ["12.30", "None"]


def test_columns_come_go_and_widen(url: str, unique_topic: str) -> None:
    """Each new schema can read the records of the one before, as registries demand by default."""
    encode = RegistryRecords(Registry(url=url), unique_topic)
    versions = [schema_of(v="int"), schema_of(v="int", w="datetime"), schema_of(w="datetime"), schema_of(w="datetime")]
    wide = (*versions[2].columns, Column(name="v", column_type="bigint", nullable=False))
    versions[3] = replace(versions[2], columns=wide)
    records = [next(iter(encode(cut(schema, {"id": 1}), "shop"))) for schema in versions]
    assert len({value[:5] for _, value in records if value is not None}) == len(versions)


def test_a_schema_that_cannot_read_older_records_is_refused(url: str, unique_topic: str) -> None:
    """The error names the subject and the remedy."""
    encode = RegistryRecords(Registry(url=url), unique_topic)
    list(encode(cut(schema_of(v="varchar(9)"), {"id": 1}), "shop"))
    with pytest.raises(Fatal, match=f"{unique_topic}-value") as refused:
        list(encode(cut(schema_of(v="int"), {"id": 1}), "shop"))
    assert "compatibility" in refused.value.hint


def test_logins_and_failures() -> None:
    """A wrong login, a registry that fails, and one that is not there; no message has the password."""
    registry = MemoryRegistry(login="ann:sesame")
    one = cut(schema_of(), {"id": 1})
    with registry.served() as address:
        list(RegistryRecords(Registry(url=address, login="ann:sesame"), "t")(one, "shop"))
        with pytest.raises(Fatal, match="refuses the login") as refused:
            list(RegistryRecords(Registry(url=address, login="ann:guess"), "t")(one, "shop"))
        assert "guess" not in str(refused.value) + repr(Registry(url=address, login="ann:guess"))
    with pytest.raises(Retriable, match="does not answer"):
        list(RegistryRecords(Registry(url=address), "t")(one, "shop"))


def test_unusable_options_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each error says what to write instead."""
    topology = topology_named("x")
    there = {"form": "debezium-avro", "to": "kafka://127.0.0.1:1/p"}
    for settings, message in (
        (there, "without a schema registry"),
        ({**there, "registry": "registry:8081"}, "not a URL"),
        ({**there, "registry": "http://ann:sesame@h:1"}, "login in its URL"),
        ({**there, "to": "lake", "registry": "http://h:1"}, "to a folder"),
        ({**there, "form": "debezium", "registry": "http://h:1"}, "with --format debezium"),
    ):
        with pytest.raises(UsageError, match=message) as refused:
            sinks(topology, ExportOptions(**settings))  # type: ignore[arg-type]
        assert "sesame" not in str(refused.value) + refused.value.hint
    monkeypatch.setenv("TAILORBIRD_SCHEMA_REGISTRY_LOGIN", "ann:sesame")
    assert registry_at("https://h:1").login == "ann:sesame"
    assert json.dumps(str(registry_at("https://h:1"))).count("sesame") == 0
