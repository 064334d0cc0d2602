"""Compare the rows of a PostgreSQL server with those of a reader of the topics."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable

from tests.support.pg_captured import PgCaptured

Text = dict[str, str | None]


def in_log(captured: PgCaptured, table: str) -> list[Text]:
    """Return a topic reader's rows, values as texts."""
    return _sorted(
        {name: None if value is None else str(value) for name, value in row.items()}
        for row in captured.state(table).values()
    )


def in_server(captured: PgCaptured, table: str) -> list[Text]:
    """Return a table's own rows, with the columns that its server can publish."""
    ((kind, version),) = captured.sql(
        f"SELECT relkind::text, current_setting('server_version_num')::int FROM pg_class "
        f"WHERE oid = 'public.\"{table}\"'::regclass"
    )
    hidden = [
        name for (name,) in captured.sql(
            f"SELECT attname FROM pg_attribute WHERE attrelid = 'public.\"{table}\"'::regclass AND attgenerated <> '' "
            f"AND NOT (attgenerated = 's' AND {version} >= 180000)"
        )
    ]  # fmt: skip
    rows = captured.sql(f'SELECT to_jsonb(row.*) FROM {"" if kind == "p" else "ONLY"} public."{table}" AS row')
    return _sorted(
        {name: None if value is None else str(value) for name, value in row.items() if name not in hidden}
        for (row,) in rows
    )


def same(captured: PgCaptured, table: str) -> bool:
    """Return whether a reader of the topic has the server's rows."""
    return in_server(captured, table) == in_log(captured, table)


def equal(captured: PgCaptured, *tables: str) -> None:
    """Wait until readers of the topics have the server's rows."""
    for table in tables:
        deadline = time.monotonic() + 30
        while not same(captured, table) and time.monotonic() < deadline and captured.failed is None:
            time.sleep(0.05)
        assert captured.failed is None
        assert in_log(captured, table) == in_server(captured, table), (table, captured.phases.said)


def _sorted(rows: Iterable[Text]) -> list[Text]:
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))
