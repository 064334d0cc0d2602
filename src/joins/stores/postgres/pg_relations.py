"""Create, fill, show and drop the relations of joined tables in PostgreSQL. See `joins.stores.postgres.pg_table`.

Every function works in the caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from cdc.model.errors import UsageError
from cdc.stored.layout import Layout, load_layout
from joins.stores.postgres.pg_server import Transaction
from joins.stores.postgres.relational import (
    ATTEMPT,
    BATCH,
    COMMITTED,
    GONE,
    KEY,
    TIMESTAMP,
    TRACE,
    columns_of,
    key_of,
    quoted,
)

_CONTROL = """
CREATE TABLE IF NOT EXISTS {rows}._tables (
    name text PRIMARY KEY, layout text NOT NULL, served text, run text NOT NULL DEFAULT '', relation text,
    building text, attempt bigint NOT NULL DEFAULT 0, batch bigint NOT NULL DEFAULT -1,
    "timestamp" bigint NOT NULL DEFAULT 0, barrier text);
CREATE TABLE IF NOT EXISTS {rows}._views (name text PRIMARY KEY, version text NOT NULL);
CREATE TABLE IF NOT EXISTS {rows}._relations (relation text PRIMARY KEY, name text NOT NULL);
CREATE OR REPLACE VIEW {schema}._progress AS
SELECT v.name AS "table", t.name AS version, (t.barrier::json ->> 'batch')::bigint AS batch,
       to_timestamp((t.barrier::json ->> 'stamp')::float8 / 1000) AS complete_at,
       t.barrier::json -> 'positions' AS positions, (t.barrier::json ->> 'incomplete')::bigint AS incomplete
  FROM {rows}._views v JOIN {rows}._tables t ON t.name = v.version
"""


def run_sql(t: Transaction, sql: str, arguments: Sequence[object] = ()) -> psycopg.Cursor[tuple[Any, ...]]:
    """Execute a statement whose names are quoted."""
    return t.execute(sql.encode(), arguments or None)


def create_control(t: Transaction, schema: str) -> None:
    """Create the two schemas and the control tables that are missing.

    A missing schema needs the privilege CREATE on the database; an administrator may create both instead."""
    run_sql(t, "SELECT pg_advisory_xact_lock(hashtext('tailorbird'), hashtext(%s))", (schema,))
    for name in (schema, f"{schema}_rows"):
        if run_sql(t, "SELECT 1 FROM pg_namespace WHERE nspname = %s", (name,)).fetchone() is None:
            run_sql(t, f"CREATE SCHEMA {quoted(name)}")
    rows = quoted(f"{schema}_rows")
    found = run_sql(t, "SELECT to_regclass(%s), to_regclass(%s)", (f"{rows}._relations", f"{quoted(schema)}._progress"))
    if None in (found.fetchone() or (None,)):
        for statement in _CONTROL.format(rows=rows, schema=quoted(schema)).split(";"):
            run_sql(t, statement)


def lacking(t: Transaction, schema: str, user: str) -> list[str]:
    """Return the statements that an administrator must run so that `create_control` can create what is missing."""
    database = "SELECT current_database(), has_database_privilege(current_database(), 'CREATE')"
    name, may_create = run_sql(t, database).fetchone() or ("", False)
    found = []
    for one in (schema, f"{schema}_rows"):
        state = run_sql(
            t, "SELECT has_schema_privilege(oid, 'CREATE') FROM pg_namespace WHERE nspname = %s", (one,)
        ).fetchone()
        if state is None and not may_create:
            found.append(f"GRANT CREATE ON DATABASE {quoted(str(name))} TO {quoted(user)}")
        elif state == (False,):
            found.append(f"GRANT CREATE, USAGE ON SCHEMA {quoted(one)} TO {quoted(user)}")
    return list(dict.fromkeys(found))


def view_name(version: str) -> str:
    """Return the name that readers use: that of the table in the topology, without the version's number."""
    return version.partition(".")[0]


def relation_name(name: str, run: str) -> str:
    """Return the name of a run's relation, short enough for that of its staging relation (at most 63 bytes)."""
    return f"{name[:40]}_{run.replace('-', '')[:12]}"


def staging_of(relation: str) -> str:
    """Return the name of the relation that rows are staged in."""
    return f"{relation}_staged"


def create_relation(t: Transaction, schema: str, name: str, relation: str, layout: Layout) -> None:
    """Create the empty relation of a run, and its staging relation."""
    rows, columns = quoted(f"{schema}_rows"), columns_of(layout)
    listed = [f"{column.quoted} {column.type}" for column in columns]
    listed += [f"{KEY} bytea"] if layout.nullable_key else []
    own = [f"{COMMITTED} bigint NOT NULL", f"{TRACE} bytea NOT NULL"]
    drop_relation(t, schema, relation)
    key = ", ".join(quoted(one) for one in key_of(layout))
    stamped = [f"{BATCH} bigint NOT NULL", f"{TIMESTAMP} bigint NOT NULL", f"PRIMARY KEY ({key})"]
    target, staged = (f"{rows}.{quoted(one)}" for one in (relation, staging_of(relation)))
    run_sql(t, f"CREATE TABLE {target} ({', '.join([*listed, *own, *stamped])})")
    if layout.nullable_key:
        run_sql(t, f"CREATE INDEX ON {target} ({', '.join(quoted(one) for one in layout.row_key)})")
    marks = [f"{ATTEMPT} bigint NOT NULL", f"{GONE} boolean NOT NULL"]
    run_sql(t, f"CREATE TABLE {staged} ({', '.join([*listed, *own, *marks])})")
    run_sql(
        t, f"INSERT INTO {rows}._relations VALUES (%s, %s) ON CONFLICT (relation) DO NOTHING", (relation, name)
    )  # fmt: skip


def drop_relation(t: Transaction, schema: str, relation: str) -> None:
    """Drop a run's relation and its staging relation if they exist."""
    rows = quoted(f"{schema}_rows")
    for one in (relation, staging_of(relation)):
        run_sql(t, f"DROP TABLE IF EXISTS {rows}.{quoted(one)}")
    run_sql(t, f"DELETE FROM {rows}._relations WHERE relation = %s", (relation,))


def move_rows(
    t: Transaction, rows: str, relation: str, layout: Layout, attempt: int, batch: int, timestamp: int
) -> None:
    """Apply the staged rows of an attempt: first deletes, then puts, so that a put in the same batch wins.

    Staged rows may be repeated, because a task may be."""
    target, staged = f"{rows}.{quoted(relation)}", f"{rows}.{quoted(staging_of(relation))}"
    keys = [quoted(one) for one in key_of(layout)]
    same = " AND ".join(f"r.{key} = s.{key}" for key in keys)
    run_sql(
        t, f"DELETE FROM {target} r USING {staged} s WHERE s.{ATTEMPT} = %s AND s.{GONE} AND {same}", (attempt,)
    )  # fmt: skip
    columns = [*(one.quoted for one in columns_of(layout)), *([KEY] if layout.nullable_key else []), COMMITTED, TRACE]
    listed = ", ".join(columns)
    changed = [one for one in (*columns, BATCH, TIMESTAMP) if one not in keys]
    run_sql(
        t,
        f"INSERT INTO {target} ({listed}, {BATCH}, {TIMESTAMP})"
        f" SELECT DISTINCT ON ({', '.join(keys)}) {listed}, %s::bigint, %s::bigint FROM {staged}"
        f" WHERE {ATTEMPT} = %s AND NOT {GONE}"
        f" ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {', '.join(f'{one} = excluded.{one}' for one in changed)}",
        (batch, timestamp, attempt),
    )
    run_sql(t, f"DELETE FROM {staged} WHERE {ATTEMPT} = %s", (attempt,))


def point_view(t: Transaction, schema: str, view: str) -> None:
    """Let a view show the relation of the version in `_views`. Nothing changes if that version has none yet.

    The view is replaced in place if its columns keep their types. Otherwise another one gets its privileges. Raises
    UsageError if other views use it then."""
    rows, called = quoted(f"{schema}_rows"), f"{quoted(schema)}.{quoted(view)}"
    found = run_sql(
        t,
        f"SELECT t.relation, t.served FROM {rows}._views v JOIN {rows}._tables t ON t.name = v.version"
        " WHERE v.name = %s FOR UPDATE OF v",
        (view,),
    ).fetchone()
    if found is None or found[0] is None:
        return
    layout = load_layout(str(found[1]).encode())
    columns = ", ".join(one.quoted for one in columns_of(layout))
    select = f"AS SELECT {columns} FROM {rows}.{quoted(str(found[0]))}"
    try:
        with t.transaction():
            run_sql(t, f"CREATE OR REPLACE VIEW {called} {select}")
        return
    except psycopg.errors.InvalidTableDefinition:
        pass  # columns differ
    granted = run_sql(
        t,
        "SELECT a.privilege_type, a.is_grantable, CASE WHEN a.grantee = 0 THEN 'PUBLIC'"
        " ELSE quote_ident(pg_get_userbyid(a.grantee)) END FROM pg_class c, aclexplode(c.relacl) a"
        " WHERE c.oid = to_regclass(%s) AND a.grantee <> c.relowner",
        (called,),
    ).fetchall()
    try:
        run_sql(t, f"DROP VIEW {called}")
    except psycopg.errors.DependentObjectsStillExist as error:
        what = f"other objects use view {called}, whose columns change: {error.diag.message_detail}"
        raise UsageError(what, "drop them, start again, and create them again") from error
    run_sql(t, f"CREATE VIEW {called} {select}")
    for privilege, grantable, grantee in granted:
        run_sql(t, f"GRANT {privilege} ON {called} TO {grantee}{' WITH GRANT OPTION' if grantable else ''}")
