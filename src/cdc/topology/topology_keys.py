"""The keys of a topology file, and its JSON Schema."""

from __future__ import annotations

from typing import get_args

from cdc.grammar.forms import (
    DURATION,
    NAMED,
    TEXT,
    TEXTS,
    Schema,
    ValueForm,
    entries,
    number,
    one_of,
    read_elsewhere,
    texts,
)
from cdc.grammar.keys import DRAFT, DeclaredKey, Keys, schema_of, section
from cdc.grammar.values import NAME
from cdc.topology.hooks.reader_webhooks import WEBHOOK
from cdc.topology.reader_checks import CHECK
from cdc.topology.reader_foreign import FOREIGN
from cdc.topology.reader_panels import DASHBOARD
from cdc.topology.reader_servers import HBASE, ICEBERG, JOINS, LOG, OPENSEARCH, POSTGRES, SOLR
from cdc.topology.source_keys import SOURCE
from cdc.topology.topology import IndexKind, SchemaChangeBehavior, SinkKind

COPY: Keys = {
    "family": DeclaredKey(form=NAMED, about="The column family.", default="d"),
    "salt_buckets": DeclaredKey(
        form=number(1, 255), about="Regions of the HBase table; buckets of a table in Iceberg.", default="2"
    ),
    "engine": DeclaredKey(form=one_of("jvm"), about="No effect; accepted because older files have it."),
    "state_partitions": DeclaredKey(
        form=number(1, 1000), about="Partitions of the join's state. Default: half of the driver's cores, at least 2."
    ),
    "max_changes_per_batch": DeclaredKey(
        form=number(1, 10_000_000),
        about="The approximate maximum of changes per batch. A batch has fewer if it would take longer than about 4 s.",
        default="200000",
    ),
    "sink": DeclaredKey(
        form=one_of(*get_args(SinkKind)),
        about="The destination; `kafka`: a compacted topic; `postgres`, `iceberg`: a table of that section's server.",
        default="hbase",
    ),
    "schema_change_behavior": DeclaredKey(
        form=one_of(*get_args(SchemaChangeBehavior)),
        about="When the query's columns change: use the new ones; only add, and keep removed ones as NULL; fail.",
        default="evolve",
    ),
}
TABLE: Keys = {
    "query": DeclaredKey(form=TEXT, about="One SELECT.", required=True),
    "row_key": DeclaredKey(
        form=texts(at_least=1, expected="one column at least"),
        about="The output columns that identify a row; they become the key in HBase.",
        required=True,
    ),
    **COPY,
}
INDEX: Keys = {
    "table": DeclaredKey(form=NAMED, about="The joined or foreign table.", required=True),
    "type": DeclaredKey(form=one_of(*get_args(IndexKind)), about="The search engine.", default="solr"),
    "collection": DeclaredKey(
        form=NAMED, about="The collection in Solr, or the alias in OpenSearch. Default: `<name>_<index>`."
    ),
    "search": DeclaredKey(form=TEXTS, about="Columns for full-text search."),
    "commit_within": DeclaredKey(
        form=DURATION, about="The time after which queries see an accepted document.", default="200ms"
    ),
    "stub_retention": DeclaredKey(
        form=DURATION, about="How long the index keeps at least a small document for a deleted row.", default="1h"
    ),
    "shards": DeclaredKey(
        form=number(1, 1000),
        about="Shards of the collection; more than one needs SolrCloud or OpenSearch.",
        default="1",
    ),
}
_TABLES = {
    "type": ["object", "array", "string"],
    "patternProperties": {f"^{NAME.pattern}$": schema_of(TABLE), r"\.": schema_of(COPY)},
    "additionalProperties": False,
    "minProperties": 1,
    "items": TEXT.schema,
    "minItems": 1,
}
_CAPTURED = "Sources to capture: database servers and streams."
TOPOLOGY: Keys = {
    "name": DeclaredKey(form=NAMED, about="The topology's name: the prefix of topics and collections.", required=True),
    "sources": DeclaredKey(form=entries(section(SOURCE)), about=_CAPTURED),
    "log": DeclaredKey(form=section(LOG), about="Kafka."),
    "hbase": DeclaredKey(form=section(HBASE), about="HBase, where joined tables are stored."),
    "solr": DeclaredKey(form=section(SOLR), about="Solr, where indexes are by default."),
    "opensearch": DeclaredKey(form=section(OPENSEARCH), about="OpenSearch, where indexes with `type: opensearch` are."),
    "postgres": DeclaredKey(form=section(POSTGRES), about="PostgreSQL, where tables with `sink: postgres` are stored."),
    "iceberg": DeclaredKey(form=section(ICEBERG), about="The Iceberg catalog of tables with `sink: iceberg`."),
    "joins": DeclaredKey(form=section(JOINS), about="Settings of all joins."),
    "tables": DeclaredKey(
        form=ValueForm(read=read_elsewhere, schema=_TABLES),
        about="Joined tables; `source.*` or `source.table`, alone, in a list or as a key, means copies.",
    ),
    "indexes": DeclaredKey(
        form=entries(section(INDEX)), about="Collections of a search engine over joined or foreign tables."
    ),
    "dashboards": DeclaredKey(form=entries(section(DASHBOARD)), about="Live pages over indexes."),
    "foreign_tables": DeclaredKey(form=entries(section(FOREIGN)), about="HBase tables that other programs write."),
    "checks": DeclaredKey(form=entries(section(CHECK)), about="What `tailorbird verify` compares on a schedule."),
    "webhooks": DeclaredKey(form=entries(section(WEBHOOK)), about="URLs that receive events (CloudEvents)."),
}


def topology_schema() -> Schema:
    """Return the JSON Schema (draft 7) of topology files, without references between parts of the file."""
    required = {"anyOf": [{"required": ["sources"]}, {"required": ["foreign_tables"]}]}
    return {
        "$schema": DRAFT,
        "title": "Tailorbird topology",
        **schema_of(TOPOLOGY),
        **required,
    }
