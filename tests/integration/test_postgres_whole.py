"""The topology that `tailorbird init` writes for PostgreSQL, from its tables to Solr on real servers.

It runs unchanged, as a user with the least privileges, and the commands to inspect and verify it work as they do over
MySQL.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import happybase
import pytest

from cdc.process.file_topology import load_topology
from cdc.stored.cells import RowCodec
from cdc.topology.topology import Topology
from indexer.table.hbase_layouts import StoredLayouts
from indexer.table.hbase_rows import scan_rows
from tailorbird.cli.change.cli_apply import provision
from tailorbird.devtools.stack.proc_stack import Stack
from tailorbird.operate.pipeline.proc_pipeline import Pipeline
from tests.integration.made_databases import reported
from tests.support.commands import objects, tailorbird
from tests.support.pg_servers import PgServer
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

MADE = (
    "CREATE TABLE customers (id UUID PRIMARY KEY, name TEXT, since TIMESTAMPTZ)",
    "CREATE TABLE invoices (id BIGINT PRIMARY KEY, customer UUID, amount NUMERIC(12,2), exact NUMERIC, due DATE, "
    "made_at TIMESTAMP, ok BOOL, tags TEXT[], about JSONB, code CHAR(5))",
    "INSERT INTO customers SELECT md5(g::text)::uuid, 'näme ' || g, to_timestamp(g) FROM generate_series(1, 40) g",
    "INSERT INTO invoices SELECT g, md5((g % 50)::text)::uuid, g / 3.0, g / 7.0, date '2024-01-01' + g, "
    "timestamp '2024-01-01' + g * interval '1.5 s', g % 2 = 0, ARRAY['a', g::text], jsonb_build_object('n', g, 'l', "
    "'[1, 2]'::jsonb), 'c' || g % 9 FROM generate_series(1, 400) g",
    # some invoices have no customer; `init` follows the key
    "ALTER TABLE invoices ADD FOREIGN KEY (customer) REFERENCES customers NOT VALID",
)


# damage in HBase over MySQL: test_thread.py; repairs by a capture of PostgreSQL: test_verify_log_postgres.py
@pytest.mark.parametrize("damaged", [False, pytest.param(True, marks=pytest.mark.matrix)])
def test_verify_wait_and_explain_work_over_postgres(
    stack: Stack, postgres_server: PgServer, unique: Callable[[str], str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, damaged: bool,
) -> None:  # fmt: skip
    """`verify` of all stages reports equality; a row changed in HBase is found and repaired from the sources; `wait`
    returns when the index shows a commit; `explain` names the events of a row; `doctor` finds no fault once the owner
    of the tables has run its statements.
    """
    name, file = unique("pgw"), tmp_path / "whole.yml"
    with postgres_server.session() as owner:
        owner.execute(f"CREATE DATABASE {name} OWNER app")

    def sql(*statements: str) -> None:
        with postgres_server.session(name) as session:
            for statement in statements:
                session.execute(statement.encode())

    sql(*MADE)
    monkeypatch.setenv("MINE", "secret")
    sql(
        f"CREATE ROLE {name} LOGIN REPLICATION PASSWORD 'secret'", f"GRANT USAGE ON SCHEMA public TO {name}",
        f"GRANT SELECT ON customers, invoices TO {name}",
    )  # fmt: skip
    address = f"postgresql://{name}@127.0.0.1:{postgres_server.port}/{name}"
    reported("init", address, "--out", str(file), "--name", name, "--tables", "1", "--password-env", "MINE")
    if damaged:  # joins write a row again only if the log has whole rows
        sql("ALTER TABLE customers REPLICA IDENTITY FULL", "ALTER TABLE invoices REPLICA IDENTITY FULL")
        text = file.read_text()
        file.write_text(text.replace("type: postgresql\n", "type: postgresql\n    replica_identity: full\n"))
        assert file.read_text() != text
    code, said, errors = objects("doctor", str(file))
    faults = [one for one in said if one["status"] == "fault"]
    assert (code, [one["check"] for one in faults]) == (1, ["publication"]), (said, errors)
    sql(*faults[0]["remedy"].split("; "))  # the owner of the tables runs the statements
    topology = load_topology(str(file))
    ((source, _),), ((wide, table),) = topology.sources.items(), topology.tables.items()
    list(provision(topology))
    with Pipeline(topology, home=tmp_path) as pipeline:
        pipeline.start()

        def run(*words: str, code: int = 0) -> list[dict[str, Any]]:
            done = tailorbird(*words, environ=pipeline.environ)
            assert "Traceback" not in done.stderr
            assert done.returncode == code, (words, done.returncode, done.stdout[:2000], done.stderr[-1000:])
            return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

        def verdicts(*words: str, code: int = 0) -> dict[str, dict[str, Any]]:
            said = run("verify", str(file), "--json", *words, code=code)
            return {one["stage"]: one for one in said if one["kind"] == "verdict" and one["table"] != "customers"}

        wait_for(lambda: len(scan_rows(topology, table)) == 400, "no row is joined", 480)
        sql(
            "UPDATE invoices SET amount = amount + 1, about = about || '{\"x\": [1,  2.50]}' WHERE id % 7 = 0",
            "UPDATE customers SET name = 'other' WHERE name LIKE '%5'",
            "DELETE FROM invoices WHERE id = 11",
            "UPDATE invoices SET id = 1000 WHERE id = 12",
        )
        run("wait", str(file), "--source", source, "--now", "--timeout", "120")
        with postgres_server.session(name) as session:
            row = session.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
            assert row is not None
            run("wait", str(file), "--source", source, "--lsn", str(row[0]), "--timeout", "120")
        run("wait", str(file), "--source", source, "--gtid", "a:1-5", code=2)
        found = verdicts()
        assert {stage: (one["outcome"], one["differing"], one["rows"]) for stage, one in found.items()} == {
            "log": ("equal", 0, 399), "table": ("equal", 0, 399), "index": ("equal", 0, 399),
        }, found  # fmt: skip
        explained = json.dumps(run("explain", str(file), wide, "7", "--json"))
        assert '"amount"' in explained
        run("doctor", str(file))

        if not damaged:
            return
        damage(topology)
        found = verdicts("--stage", "table", code=1)
        assert (found["table"]["outcome"], found["table"]["differing"]) == ("different", 3)
        run("verify", str(file), "--json", "--stage", "table", "--repair", "--yes")
        assert verdicts("--stage", "table")["table"]["outcome"] == "equal"


def damage(topology: Topology) -> None:
    """Change a row in HBase, delete one and add one."""
    (table,), thrift = topology.tables.values(), topology.hbase.thrift
    layout = StoredLayouts(thrift, topology=topology.name, table=table.name).newest()
    assert layout is not None
    codec, now = RowCodec(layout), time.time_ns() // 1_000_000
    known = {row.values["id"]: row.values for row in scan_rows(topology, table).values()}
    host, _, port = thrift.rpartition(":")
    with closing(happybase.Connection(host, int(port), timeout=30_000)) as connection:
        rows = connection.table(f"{topology.name}:{table.name}")
        for values in ({**known[21], "amount": "0.01"}, {**known[22], "id": 9999}):
            cells = codec.cells(values, batch=1, ts_ms=1)
            rows.put(codec.row_key(values), {b"d:" + q: v for q, v in cells.items()}, timestamp=now, wal=False)
        with rows.batch(timestamp=now, wal=False) as batch:
            batch.delete(codec.row_key({"id": 23}))
