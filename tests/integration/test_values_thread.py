"""Values that types cannot represent, and non-finite numbers, from MySQL and PostgreSQL to Solr: no row is missing.

Each row is written twice: before the capture starts (the snapshot reads it) and after (the log contains it). A sum that
exceeds its type is the exception: a dead-letter record, until the rows are corrected.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
import requests

from cdc.process.file_topology import load_topology
from cdc.topology.topology import Topology
from tailorbird.cli.change.cli_apply import provision
from tailorbird.devtools.stack.proc_stack import Stack
from tailorbird.devtools.stack.settings import LOAD_LOGIN
from tailorbird.operate.pipeline.proc_pipeline import Pipeline
from tests.support.commands import objects, tailorbird, verified
from tests.support.pg_servers import PgServer
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.matrix, pytest.mark.timeout(2400)]

MY_DAYS = "id INT PRIMARY KEY, d DATE NOT NULL, at DATETIME(3), ts TIMESTAMP NULL, hidden DATE, n INT"
MY_ROWS = (
    ("'2020-01-02'", "'2020-01-02 03:04:05.5'", "'2020-01-02 03:04:05'", "NULL", 0),
    ("'0000-00-00'", "'0000-00-00 00:00:00'", "'0000-00-00 00:00:00'", "'2017-00-13'", 1),
    ("'2020-00-00'", "'2020-02-31 10:00:00'", "NULL", "'2017-00-13'", 2),
    ("'0000-01-01'", "NULL", "'2038-01-19 03:14:07'", "'2017-02-31'", 3),
)
PG_DAYS = (
    "id INT PRIMARY KEY, d DATE NOT NULL, at TIMESTAMP, tz TIMESTAMPTZ, amount NUMERIC(8,2), f DOUBLE PRECISION,"
    " r REAL, days DATE[], fs DOUBLE PRECISION[], g TEXT NOT NULL"
)
PG_ROWS = (
    "'2020-01-02','2020-01-02 03:04:05.5','2020-01-02 03:04:05+00',1.25,1.5,2.5,'{2020-01-02}','{1.5}','a'",
    "'infinity','-infinity','infinity','NaN','NaN','NaN','{infinity}','{NaN,1}','a'",
    "'0044-03-15 BC','0001-01-01 BC','10000-01-01 00:00:00+00',NULL,'Infinity','-Infinity',NULL,NULL,'a'",
    "'2020-01-03',NULL,NULL,2.5,'-Infinity','Infinity','{}','{}','b'",
    "'2020-01-04',NULL,NULL,3.5,'-8e307',0,'{}','{}','c'",
)
SERVERS = (
    "log: {bootstrap_servers: '127.0.0.1:${TAILORBIRD_PORT_KAFKA:-9092}'}\n"
    "hbase: {thrift: '127.0.0.1:${TAILORBIRD_PORT_THRIFT:-9090}',"
    " zookeeper: '127.0.0.1:${TAILORBIRD_PORT_ZOOKEEPER:-2181}'}\n"
    "solr: {url: 'http://127.0.0.1:${TAILORBIRD_PORT_SOLR:-8983}/solr'}\n"
)
NUMBER = 100  # suffix of the keys of rows from the log


def topology_text(name: str, my_port: int, pg_port: int) -> str:
    names = ("my", "pg", "groups", "joined")
    indexes = "".join(f"  {one}: {{table: {one}}}\n" for one in names)
    return (
        f"name: {name}\nsources:\n"
        f"  shop: {{type: mysql, hostname: 127.0.0.1, port: {my_port}, username: cdc, password: cdc, database: {name},"
        " server_id: 8311, tables: {t: {ignored_columns: [hidden]}}}\n"
        f"  crm: {{type: postgresql, hostname: 127.0.0.1, port: {pg_port}, username: cdc, password: cdc,"
        f" dbname: {name}, tables: [p]}}\n"
        f"{SERVERS}tables:\n"
        "  my: {query: 'SELECT t.id, t.d, t.at, t.ts, t.n FROM shop.t t', row_key: [id]}\n"
        "  pg: {query: 'SELECT p.id, p.d, p.at, p.tz, p.amount, p.f, p.r, p.days, p.fs, p.g FROM crm.public.p p',"
        " row_key: [id]}\n"
        "  groups: {query: 'SELECT p.g, count(*) AS n, sum(p.f) AS total, avg(p.r) AS mean, min(p.f) AS least,"
        " max(p.f) AS most FROM crm.public.p p GROUP BY p.g', row_key: [g]}\n"
        "  joined: {query: 'SELECT p.id, p.f, p.f * 2 AS twice, t.d, t.n FROM crm.public.p p"
        " LEFT JOIN shop.t t ON t.id = p.id', row_key: [id]}\n"
        f"indexes:\n{indexes}"
    )


def documents(topology: Any, index: str) -> dict[str, dict[str, Any]]:
    """Return the rows of an index by key."""
    url = f"{topology.solr.url}/{topology.indexes[index].collection}/select"
    asked = {"q": "_kind:row", "rows": "100", "fl": "*"}
    found = requests.get(url, params=asked, timeout=30).json()["response"]["docs"]
    return {str(one.get("id", one.get("g"))): {k: v for k, v in one.items() if k[0] != "_"} for one in found}


def test_no_row_disappears_for_a_value(
    stack: Stack, postgres_server: PgServer, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """All rows reach Solr: NULL for values that cannot be represented, counted by column; NaN and infinities unchanged,
    in sums and extremes as Spark computes them. `verify` finds every stage equal; no hidden column is counted or shown.
    """
    name = unique("values")
    my_port = stack.settings.ports.mysql_shop
    file = tmp_path / "values.yml"
    file.write_text(topology_text(name, my_port, postgres_server.port))
    with postgres_server.session() as owner:
        owner.execute(f"CREATE DATABASE {name} OWNER app")
    mysql = pymysql.connect(
        host="127.0.0.1", port=my_port, user=LOAD_LOGIN.user, password=LOAD_LOGIN.password, autocommit=True
    )
    with mysql, mysql.cursor() as my, postgres_server.session(name) as pg:
        my.execute("SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'")
        for statement in (f"CREATE DATABASE {name}", f"USE {name}", f"CREATE TABLE t ({MY_DAYS})"):
            my.execute(statement)
        pg.execute(f"CREATE TABLE p ({PG_DAYS})")

        def write(more: int) -> None:
            for number, row in enumerate(MY_ROWS):
                my.execute(f"INSERT INTO t VALUES ({number + more}, {', '.join(map(str, row))})")
            for number, values in enumerate(PG_ROWS):
                pg.execute(f"INSERT INTO p VALUES ({number + more}, {values})")

        write(0)
        topology = load_topology(str(file))
        list(provision(topology))
        with Pipeline(topology, home=tmp_path) as pipeline:
            pipeline.start()
            wait_for(lambda: len(documents(topology, "pg")) == len(PG_ROWS), "the snapshots never come", 900)
            write(NUMBER)
            wait_for(lambda: len(documents(topology, "pg")) == 2 * len(PG_ROWS), "the log never comes", 300)
            wait_for(lambda: len(documents(topology, "my")) == 2 * len(MY_ROWS), "the log never comes", 300)
            wait_for(lambda: documents(topology, "groups").get("a", {}).get("n") == 6, "a group lacks rows", 300)
            wait_for(lambda: matched(topology) == 2 * len(MY_ROWS), "rows of two sources are not joined", 300)
            for index in ("my", "pg", "joined"):
                found = documents(topology, index)
                for key, row in found.items():
                    twin = found[str((int(key) + NUMBER) % (2 * NUMBER))]
                    assert {**row, "id": 0} == {**twin, "id": 0}, (index, key)
            rows = documents(topology, "my")
            assert rows["0"] == {"id": 0, "d": "2020-01-02", "at": "2020-01-02T03:04:05.5Z",
                                 "ts": "2020-01-02T03:04:05Z", "n": 0}  # fmt: skip
            assert [rows[key] for key in "123"] == [
                {"id": 1, "n": 1}, {"id": 2, "n": 2}, {"id": 3, "n": 3, "ts": "2038-01-19T03:14:07Z"}
            ]  # fmt: skip
            rows = documents(topology, "pg")
            assert rows["1"] == {"id": 1, "f": "NaN", "r": "NaN", "fs": '["NaN",1.0]', "g": "a"}
            assert rows["2"] == {"id": 2, "f": "Infinity", "r": "-Infinity", "g": "a"}
            groups = documents(topology, "groups")
            assert groups["a"] == {"g": "a", "n": 6, "total": "NaN", "mean": "NaN", "least": 1.5, "most": "NaN"}
            assert groups["b"] == {"g": "b", "n": 2, "total": "-Infinity", "mean": "Infinity", "least": "-Infinity",
                                   "most": "-Infinity"}  # fmt: skip
            assert documents(topology, "joined")["1"] == {"id": 1, "f": "NaN", "twice": "NaN", "n": 1}

            status = tailorbird("status", str(file))
            assert "INCOMPLETE" not in status.stdout, status.stdout
            assert f"table shop.{name}.t: values published as NULL" in status.stdout, status.stdout
            assert "hidden" not in status.stdout
            said = [json.loads(line) for line in tailorbird("status", str(file), "--json").stdout.splitlines()]
            (counted,) = (one for one in said if one["kind"] == "unrepresentable" and "shop" in one["table"])
            assert counted["columns"] == {"at": 4, "d": 6, "ts": 2}

            must_be_proved(file)
            must_report_an_overflow(topology, pg)


def matched(topology: Topology) -> int:
    """Return how many joined rows have the columns of both sources."""
    return sum("n" in row for row in documents(topology, "joined").values())


def must_be_proved(file: Path) -> None:
    """`verify` of every stage reports equality."""
    found = verified(str(file))
    assert {stage for stage, _ in found} == {"log", "table", "index"}
    assert {one["outcome"] for one in found.values()} == {"equal"}, found


def must_report_an_overflow(topology: Topology, pg: psycopg.Connection[Any]) -> None:
    """A sum of finite doubles exceeds the type: it is NULL, and a dead-letter record names the group and the sum. The
    other aggregates of the group are there, and `verify` agrees. The record is closed once the sum fits again."""
    for key in (300, 301):
        pg.execute(f"INSERT INTO p (id, d, f, r, g) VALUES ({key}, '2020-01-05', -1e308, 1, 'd')".encode())
    wait_for(lambda: documents(topology, "groups").get("d", {}).get("n") == 2, "the group lacks rows", 300)
    assert documents(topology, "groups")["d"] == {"g": "d", "n": 2, "mean": 1.0, "least": -1e308, "most": -1e308}
    code, listed, _ = objects("dead-letters", "list", topology.file)
    ((of, key, reason),) = ((one["of"], json.loads(one["key"]), one["reason"]) for one in listed)
    assert (code, of, key) == (0, "groups", "d")
    assert reason == "not computed: SUM(p.f)"
    code, said, _ = objects("status", topology.file)
    assert [(one["stage"], one["of"]) for one in said if one["kind"] == "incomplete"] == [("join", "groups")]
    must_be_proved(Path(topology.file))
    pg.execute(b"UPDATE p SET f = 1 WHERE id = 301")
    wait_for(lambda: documents(topology, "groups")["d"].get("total") == -1e308, "the sum does not fit again", 300)
    wait_for(lambda: objects("dead-letters", "list", topology.file)[1] == [], "the record stays open", 60)
    must_be_proved(Path(topology.file))
