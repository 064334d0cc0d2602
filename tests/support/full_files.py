"""Topologies that together use every key, changes of them, and YAML as editors read it (version 1.2, core schema)."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from typing import Any

import yaml

_SERVER = """
    hostname: h
    username: u
    password: ${PASSWORD:-p}
    database: d
    position_lost: fail
    cascades: ignore
    snapshot_max_threads: 4
    unrepresentable: text
    delivery: exactly_once
"""
_RULE = (
    "{ignored_columns: [x], mask: {y: sha256(z)}, message_key_columns: [id], append_only: true, watermark: 5m, "
    "where: id > 1}"
)
FULL = {
    "mysql": f"""
name: t
sources:
  s:
    type: mysql
    port: 3307
    server_id: 7
    capture: log
    filter_policy: drop
    snapshot_mode: never
    snapshot_locking_mode: minimal
    heartbeat_interval_ms: 1000
    ssl_mode: verify_ca
    ssl_ca: ca.pem
    ssl_cert: c.pem
    ssl_key: k.pem
    snapshot: {{hostname: r, port: 3306, ssl_mode: verify_ca, ssl_ca: c.pem, ssl_cert: c.pem, ssl_key: k.pem}}
    tables: {{a: {_RULE}, b: }}
{_SERVER}
""",
    "servers": """
name: t
sources: {s: {type: sql, capture: poll, cursor: at, url: "sqlite:///x", database: d, tables: [a, b]}}
log:
  bootstrap_servers: k:9092
  partitions: ${PARTITIONS:-4}
  replication_factor: 3
  min_compaction_lag: 2d
  topics: per_table
  security:
    protocol: SASL_SSL
    mechanism: OAUTHBEARER
    username: u
    password: p
    token_url: https://id/token
    scope: kafka
    token_ca_file: id.pem
    ca_file: ca.pem
    certificate_file: c.pem
    key_file: k.pem
    key_password: x
    roles: {capture: {username: c, password: p}}
hbase:
  {thrift: "h:9090", zookeeper: "z:2181", advertised_host: a, bind: 0.0.0.0, region_servers: [r], clock_tolerance: 5m}
postgres:
  {hostname: h, port: 5432, username: u, password: p, dbname: d, schema: s,
   ssl_mode: verify_ca, ssl_ca: c.pem, ssl_cert: c.pem, ssl_key: k.pem}
iceberg:
  {uri: "sqlite:///c.db", warehouse: "s3://b/w", namespace: n, interval: 1m, retain: 2h, properties: {s3.region: r}}
solr: {url: "https://s:8983/solr", username: u, password: p, ca_file: ca.pem}
joins: {isolation: process}
""",
    "joined": """
name: t
sources: {s: {type: sql, capture: poll, cursor: at, url: "sqlite:///x", database: d, tables: [a, b]}}
tables:
  wide:
    query: SELECT a.id, a.name, a.at FROM s.a a
    row_key: [id]
    family: e
    salt_buckets: 4
    engine: jvm
    state_partitions: 8
    max_changes_per_batch: 10
    sink: hbase
    schema_change_behavior: lenient
  s.b: {}
indexes:
  i: {table: wide, collection: c, search: [name], commit_within: 1s, stub_retention: 2h, shards: 8}
checks:
  all: {every: 1h, tables: [wide], sample: 1/64}
  new: {every: 1h, stage: index, changed_since: last}
webhooks:
  ops: {url: "https://h/x", secret: "${PASSWORD:-p}", events: [source_stopped, slot_exceeded], ca_file: ca.pem}
""",
    "pages": """
name: t
foreign_tables: {wide: {table: x, fields: {id: {source: row, type: string}, name: {source: "d:n", type: string}}}}
indexes: {i: {table: wide}, o: {table: wide, type: opensearch}}
opensearch: {url: "https://o:9200", username: u, password: p, ca_file: ca.pem}
dashboards:
  page:
    index: i
    title: Page
    facets: [name]
    time: at
    columns: [id]
    refresh: 2s
    range: last 7 days
    panels:
      - {number: count, title: N, width: 3, where: id >= 1, format: "0,0 €"}
      - {timeseries: [sum(id), avg(id)], interval: day, title: S, width: 3, where: [id >= 1], format: "0"}
      - {timeseries: count, by: name, top: 3}
      - {terms: name, measure: max(id), top: 5, title: T, width: 3, where: name = x, format: "0"}
      - {histogram: id, measure: count, buckets: 9, title: H, width: 3, where: name = x, format: "0"}
      - {heatmap: name, measure: count, top: 4, interval: auto, title: H, width: 3, where: name = x, format: "0"}
      - {table: [name], measures: [count], top: 4, title: H, width: 3, where: name = x, format: "0"}
      - {table: name}
      - {text: Hello, title: H, width: 3}
""",
    "postgresql": f"""
name: t
sources:
  s:
    type: postgresql
    dbname: shop
    slot_name: x
    publication_name: X
    replica_identity: full
    alarm_slot: 512MiB
    filter_policy: accept
    tables: [secret]
{_SERVER}
""",
    "agents": f"""
name: t
sources:
  s:
    type: postgresql
    dbname: shop
    tables: [a]
    agent: {{names: [paris], connection: db}}
{_SERVER}
  m:
    type: postgresql
    dbname: shop
    tables: {{"t*.a": {{database_column: tenant}}}}
{_SERVER}
  t:
    type: sql
    capture: poll
    url: postgresql+psycopg://u:p@h/d
    database: d
    tables: [a]
    agent: {{labels: {{site: paris}}, connection: db}}
""",
    "polled": f"""
name: t
sources:
  s:
    type: mariadb
    capture: poll
    mode: updated_at
    cursor: at
    limit: 10
    interval: 5s
    lag: 1m
    alarm_since_success: 1h
    alarm_backlog: 5
    alarm_behind: 1h
    tables: [a]
{_SERVER}
  feed:
    type: sql
    capture: poll
    url: ${{URL:-sqlite:///x}}
    database: d
    mode: feed
    alarm_behind: 10
    alarm_unassigned: 5
    tables: {{a: {{message_key_columns: [id]}}}}
""",
    "streams": """
name: t
sources:
  k:
    type: kafka
    format: maxwell
    bootstrap_servers: k:9092
    decimals: precise
    database: d
    security: {protocol: SSL, ca_file: ca.pem, certificate_file: c.pem, key_file: k.pem, key_password: x}
    tables: {a: {topic: x, columns: {id: bigint}}}
  l:
    type: kafka
    format: upsert
    bootstrap_servers: k:9092
    database: d
    security:
      {protocol: SASL_PLAINTEXT, mechanism: OAUTHBEARER, username: u, password: p, token_url: 'https://id/token',
       scope: s, token_ca_file: id.pem}
    tables: {b: {topic: y}}
  y:
    type: syslog
    database: d
    listen: {udp: "h:514", tcp: "h:514", unix: /s}
  m:
    type: maxscale
    hostname: h
    username: u
    password: p
    database: d
    tables: {a: {message_key_columns: [id]}}
""",
    "foreign": """
name: t
foreign_tables:
  orders:
    table: sales:orders
    mapping: column
    read_row: never
    unique_key: hex
    start_row: a
    stop_row: b
    fields: {id: {source: row, type: string}, x: {source: "d:x*", take: qualifier, type: "decimal(9,2)"}}
""",
}


class EditorLoader(yaml.SafeLoader):
    """Loads YAML 1.2's core schema: `no`, `1:30` and dates are texts."""


EditorLoader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+0123456789."),
):
    EditorLoader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}",
        re.compile(f"^(?:{_pattern})$"),
        [*_first.replace("\0", ""), *[""] * ("\0" in _first)],
    )


def edited(text: str) -> Any:
    """Return the content of a YAML file as an editor sees it. Raises yaml.YAMLError if it is not YAML."""
    return yaml.load(text, Loader=EditorLoader)


WRONG: tuple[Callable[[Any], Any], ...] = (
    lambda old: [],
    lambda old: {},
    lambda old: {"a": {"b": 1}},
    lambda old: [{"a": 1}],
    lambda old: None,
    lambda old: "?!",
    lambda old: "",
    lambda old: -1,
    lambda old: 10**12,
    lambda old: "5",
    lambda old: "7s",
    lambda old: "a:70000",
    lambda old: "true",
)


def places(said: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Return the place of each value."""
    if at:
        yield at
    for key in said if isinstance(said, dict) else range(len(said)) if isinstance(said, list) else ():
        yield from places(said[key], (*at, key))


def mutations(text: str) -> Iterator[Any]:
    """Return the content of a file with one change: a value of another kind, a missing key, or an unknown one."""
    whole = edited(text)
    for place in places(whole):
        for wrong in (*WRONG, None):
            said = copy.deepcopy(whole)
            inner = said
            for key in place[:-1]:
                inner = inner[key]
            if wrong is not None:
                inner[place[-1]] = wrong(inner[place[-1]])
            else:
                del inner[place[-1]]
            yield said
        if isinstance(place[-1], str):
            said = copy.deepcopy(whole)
            inner = said
            for key in place[:-1]:
                inner = inner[key]
            inner["typo"] = inner[place[-1]]
            yield said
