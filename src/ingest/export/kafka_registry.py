"""Records in Avro whose schemas are in a schema registry, as Confluent's serializers write them.

A key or value is a zero byte, the schema's id (4 bytes, big-endian), then the Avro bytes. The subjects are
`<topic>-key` and `<topic>-value`. Source: Confluent's documentation of "Wire format". Needs `tailorbird[formats]`.
"""

from __future__ import annotations

import io
import json
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from cdc.formats.debezium_avro import AvroEnvelopes
from cdc.model.errors import Fatal, Retriable, UsageError
from cdc.model.extras import extras_named
from cdc.model.schema import TableSchema
from ingest.export.cuts import ExportCut
from ingest.export.encoding import ExportRecord

_HEAD = struct.Struct(">bI")
_LOGIN = "TAILORBIRD_SCHEMA_REGISTRY_LOGIN"
_INCOMPATIBLE, _UNAUTHORIZED, _FORBIDDEN, _SERVER = 409, 401, 403, 500
_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """A schema registry with Confluent's API: its URL, and optionally a CA file and `user:password`."""

    url: str
    ca_file: str = ""
    login: str = field(default="", repr=False)


def registry_at(url: str, ca_file: str = "") -> Registry:
    """Return the registry at a URL, with the login of the environment. Raises UsageError for an unusable URL."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError("--schema-registry is not a URL", "--schema-registry http://127.0.0.1:8081")
    if parts.username or parts.password:
        raise UsageError("--schema-registry has a login in its URL", f"set {_LOGIN}=USER:PASSWORD")
    return Registry(url=url, ca_file=ca_file, login=os.environ.get(_LOGIN, ""))


class RegistryRecords:
    """Encodes the cuts of one topic: Debezium's envelopes in Avro. It registers each schema before its first record.

    A call raises Fatal if the registry refuses the schema or the login, and Retriable while it is unavailable.
    """

    def __init__(self, registry: Registry, topic: str) -> None:
        self._settings: dict[str, Any] = {"url": registry.url, "max.retries": _TRIES}
        if registry.ca_file:
            self._settings["ssl.ca.location"] = registry.ca_file
        if registry.login:
            self._settings["basic.auth.user.info"] = registry.login
        self._url, self._topic = registry.url, topic
        self._of: TableSchema | None = None
        self._write: tuple[AvroEnvelopes, Callable[[Any], bytes], Callable[[Any], bytes]] | None = None

    def __call__(self, cut: ExportCut, topology: str) -> Iterator[ExportRecord]:
        """Yield (key, value) of a cut's changes. A tombstone follows each delete. TRUNCATE has no key, as in
        Debezium."""
        if self._write is None or self._of != cut.schema:
            envelopes = AvroEnvelopes(cut.schema, self._topic)
            self._write = envelopes, self._writer("key", envelopes.key), self._writer("value", envelopes.value)
            self._of = cut.schema
        envelopes, write_key, write_value = self._write
        for event in cut.events:
            row = event.after if event.after is not None else event.before
            key = None if row is None else write_key(envelopes.key_of(row))
            yield key, write_value(envelopes.value_of(event, topology))
            if event.op == "d":
                yield key, None

    def _writer(self, part: str, schema: dict[str, Any]) -> Callable[[Any], bytes]:
        with extras_named("formats"):
            from fastavro import parse_schema, schemaless_writer

        head, parsed = _HEAD.pack(0, self._id(f"{self._topic}-{part}", schema)), parse_schema(schema)

        def write(value: Any) -> bytes:
            out = io.BytesIO()
            out.write(head)
            schemaless_writer(out, parsed, value)
            return out.getvalue()

        return write

    def _id(self, subject: str, schema: dict[str, Any]) -> int:
        with extras_named("formats"):
            from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
            from confluent_kafka.schema_registry.error import SchemaRegistryError
            from httpx2 import TransportError

        try:
            with SchemaRegistryClient(self._settings) as client:
                return int(client.register_schema(subject, Schema(json.dumps(schema), "AVRO")))
        except TransportError as error:
            raise Retriable(f"the schema registry {self._url} does not answer: {error}") from error
        except SchemaRegistryError as error:
            raise self._translated(subject, error) from error

    def _translated(self, subject: str, error: Any) -> Retriable | Fatal:
        status, reason = error.http_status_code, error.error_message
        if status >= _SERVER:
            return Retriable(f"the schema registry {self._url} failed: {reason}")
        if status in (_UNAUTHORIZED, _FORBIDDEN):
            return Fatal(f"the schema registry {self._url} refuses the login: {reason}", f"set {_LOGIN}=USER:PASSWORD")
        if status == _INCOMPATIBLE:
            remedy = f"set the compatibility of {subject} to NONE in the registry, or export under another prefix"
            return Fatal(f"the schema registry refuses the new schema of {subject}: {reason}", remedy)
        return Fatal(f"the schema registry refuses {subject}: {reason}", "see the registry's log")
