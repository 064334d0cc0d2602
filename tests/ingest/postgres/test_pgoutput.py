"""Decode pgoutput byte by byte: log events are returned once, wherever a process ends and resumes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import orjson
import pytest

from cdc.model.event import Position
from cdc.model.history import Record as HistoryRecord
from cdc.model.schema import TableId
from ingest.ddl.catalog import Catalog, ColumnDefinition, Key, TableDefinition
from ingest.ddl.dialect import Dialect
from ingest.events.log_events import (
    CaughtUp,
    RowsLogged,
    RowsNotLogged,
    RowsPartial,
    TransactionBegan,
    TransactionEnded,
    TransactionLogged,
    one_by_one,
)
from ingest.events.tables import Tables
from ingest.postgres.column_types import PgType, PgTypes
from ingest.postgres.messages import EPOCH_US, lsn_of, lsn_text, record_end
from ingest.postgres.pgoutput import PgEvents
from ingest.postgres.visible import visible_of
from ingest.records.capture_interfaces import Checkpoint, Record
from ingest.records.records import Recorder
from ingest.repair.altered import AlteringTransactions

TYPES = PgTypes(lambda: [PgType(oid=20, name="int8"), PgType(oid=25, name="text")])
START = Checkpoint(position=Position(file="1/1", pos=100, gtid_set="", sequence=0), snapshot="done", ts_ms=0)


def begin(lsn: int, xid: int = 700) -> bytes:
    return b"B" + struct.pack(">QqI", lsn, 5_000_000, xid)


def commit(lsn: int) -> bytes:
    return b"C" + struct.pack(">BQQq", 0, lsn, lsn + 8, 5_000_000)


def relation(*columns: str, oid: int = 9, identity: str = "d", table: str = "t", key: str = "id") -> bytes:
    said = b"R" + struct.pack(">I", oid) + b"public\0" + table.encode() + b"\0" + identity.encode()
    said += struct.pack(">H", len(columns))
    for name in columns:
        said += bytes([name == key or identity == "f"]) + name.encode() + b"\0"
        said += struct.pack(">Ii", 20 if name == "id" else 25, -1)
    return said


def tuple_of(*values: Any) -> bytes:
    said = struct.pack(">H", len(values))
    for value in values:
        if value is None or value is ...:
            said += b"n" if value is None else b"u"
        else:
            said += b"t" + struct.pack(">I", len(str(value))) + str(value).encode()
    return said


def insert(*values: Any) -> bytes:
    return b"I" + struct.pack(">I", 9) + b"N" + tuple_of(*values)


def update(*values: Any, old: bytes = b"") -> bytes:
    return b"U" + struct.pack(">I", 9) + old + b"N" + tuple_of(*values)


def delete(*values: Any, kind: bytes = b"K") -> bytes:
    return b"D" + struct.pack(">I", 9) + kind + tuple_of(*values)


TRUNCATE = b"T" + struct.pack(">IBI", 1, 0, 9)


def definition(*names: str) -> TableDefinition:
    columns = tuple(
        ColumnDefinition(
            name=name, column_type="bigint" if name == "id" else "longtext", nullable=name != "id", charset=None
        )
        for name in names
    )
    keys = (Key(name="PRIMARY", kind="primary", columns=("id",)),)
    return TableDefinition(columns=columns, keys=keys, identity="9")


@dataclass
class Log:
    """The committed records, and the history among them."""

    checkpoint: Checkpoint = START
    records: list[Record] = field(default_factory=list)
    history: list[HistoryRecord] = field(default_factory=list)

    def tables(self) -> Tables:
        tables = Tables("s", {"public"}, lambda d, t: t == "t", Dialect(server="postgresql", version=180_000))
        if not self.history:
            change = tables.begin(Catalog(tables={("public", "t"): definition("id", "v")}))
            self.history += change.history
        else:
            tables.restore(self.history, self.checkpoint.position)
        return tables


def session(log: Log, messages: list[bytes | int | None], ends_at: int, commit_every: int) -> bool:
    """Read from the last checkpoint; die after so many commits. Return whether the end was reached."""
    tables = log.tables()
    place = log.checkpoint.position.pos

    def feed() -> Iterator[bytes | int | None]:
        skipping = False
        for message in messages:
            if isinstance(message, bytes) and message[:1] == b"B":
                skipping = struct.unpack_from(">Q", message, 1)[0] < place
            if not skipping or isinstance(message, int):
                yield message
        yield None

    class Feed:
        def __iter__(self) -> Iterator[bytes | int | None]:
            return feed()

    log_events = PgEvents(
        Feed(), tables, TYPES, lambda oid: None, log.checkpoint, log="1/1", idle=lambda: True, streamed=lambda xid: None
    )
    transactions = AlteringTransactions(Recorder("top", "postgresql"), tables, log.checkpoint)
    waiting: list[Record] = []
    commits = 0
    for log_event in log_events:
        for one in one_by_one(log_event):
            waiting += transactions.records(one, 7)
        if isinstance(log_event, CaughtUp):
            transactions.rest(log_events)
        between = isinstance(log_event, TransactionEnded | TransactionLogged | CaughtUp)
        if len(waiting) >= commit_every or (between and waiting) or isinstance(log_event, CaughtUp):
            commits += 1
            if commits > ends_at:
                return False
            log.checkpoint = transactions.checkpoint(log_events)
            log.records += waiting
            topic = "top.history"
            log.history += [(r.key.decode(), orjson.loads(r.value or b"null")) for r in waiting if r.topic == topic]
            waiting = []
    return True


def random_messages(random: Random) -> list[bytes | int | None]:
    """Return transactions that insert, update, delete, truncate and alter; relations are described before they are
    used."""
    columns, messages, lsn = ["id", "v"], list[bytes | int | None](), 100
    living: set[int] = set()
    for number in range(random.randrange(1, 6)):
        # the server takes long to decode a large transaction: it sends its position in the meantime
        if random.random() < 0.4:
            messages += [lsn + 30, None]
        lsn += 50
        messages += [begin(lsn, 700 + number), relation(*columns)]
        for _ in range(random.randrange(0, 14)):
            dice, key = random.random(), random.randrange(20)
            rest = ["x"] * (len(columns) - 1)
            if dice < 0.1:
                columns = ["id", "v"] if len(columns) > 2 else [*columns, f"c{random.randrange(3)}"]
                messages.append(relation(*columns))
            elif dice < 0.18:
                messages.append(TRUNCATE)
                living.clear()
            elif key not in living:
                messages.append(insert(key, *rest))
                living.add(key)
            elif dice < 0.5:
                messages.append(update(key, *rest))
            elif dice < 0.7 and key + 100 not in living:
                messages.append(update(key + 100, *rest, old=b"K" + tuple_of(key, *[None] * len(rest))))
                living ^= {key, key + 100}
            else:
                messages.append(delete(key, *[None] * len(rest)))
                living.discard(key)
        messages += [commit(lsn), *random.choice(([], [None], [lsn + 20]))]
    return messages


def reported(log: Log) -> list[tuple[bytes, Any]]:
    """Return the changes without their positions."""
    found = []
    for record in log.records:
        if record.topic == "top.s.public.t" and record.value is not None:
            event = orjson.loads(record.value)
            place = event["transaction"]["id"], event["transaction"]["total_order"]
            found.append((record.key, (event["op"], event["before"], event["after"], place)))
    return found


@pytest.mark.parametrize("seed", range(60))
def test_a_process_that_dies_anywhere_publishes_each_change_once(seed: int) -> None:
    """Whatever ends a session, also inside a transaction, the next one neither loses nor repeats changes."""
    random = Random(seed)
    messages = random_messages(random)
    whole = Log()
    assert session(whole, messages, 10_000, 10_000)
    torn = Log()
    for _ in range(200):
        if session(torn, messages, random.randrange(0, 3), random.choice((1, 2, 5))):
            break
    else:
        pytest.fail("it does not come to an end")
    assert reported(torn) == reported(whole)
    numbers = [
        orjson.loads(r.value)["source"]["sequence"]
        for r in torn.records
        if r.topic == "top.s.public.t" and r.value is not None
    ]
    assert numbers == sorted(set(numbers))
    assert torn.checkpoint.position.pos == whole.checkpoint.position.pos


def facts_of(*messages: bytes | int | None) -> list[Any]:
    log = Log()
    tables = log.tables()

    class Feed:
        def __iter__(self) -> Iterator[bytes | int | None]:
            return iter(messages)

    return list(
        PgEvents(
            Feed(), tables, TYPES, lambda oid: None, START, log="1/1", idle=lambda: True, streamed=lambda xid: None
        )
    )


def test_a_transaction_with_one_list_of_rows_is_one_event() -> None:
    """The most common kind of transaction takes one step of the loop."""
    (log_event,) = facts_of(begin(200), relation("id", "v"), insert(1, "a"), insert(2, None), commit(200))
    assert isinstance(log_event, TransactionLogged)
    assert log_event.rows.rows == [{"id": 1, "v": "a"}, {"id": 2, "v": None}]
    assert log_event.began.commit_us == 5_000_000 + EPOCH_US
    assert log_event.ended.pos == 208


def test_a_large_value_that_is_not_logged() -> None:
    """With the default identity the row is incomplete, with FULL the value comes from its old row."""
    found = facts_of(begin(200), relation("id", "v"), update(1, ...), commit(200))
    (partial,) = [log_event for log_event in found if isinstance(log_event, RowsPartial)]
    assert partial.rows == [({"id": 1}, {"id": 1})]
    full = relation("id", "v", identity="f")
    found = facts_of(begin(200), full, update(1, ..., old=b"O" + tuple_of(1, "big")), commit(200))
    (logged,) = [log_event.rows for log_event in found if isinstance(log_event, TransactionLogged)]
    assert logged.rows == [({"id": 1, "v": "big"}, {"id": 1, "v": "big"})]


def test_other_tables_are_skipped() -> None:
    """A publication may have more tables than this source captures."""
    other = relation("id", "v", oid=9, table="other")
    found = facts_of(begin(200), other, insert(1, "a"), TRUNCATE, commit(200), None, 300)
    assert not [log_event for log_event in found if isinstance(log_event, RowsLogged | TransactionLogged)]


@pytest.mark.parametrize("message", [b"S\0", b"Z", insert(1, "a")])
def test_a_message_that_might_hide_a_change_has_every_table_read_again(message: bytes) -> None:
    """Messages of other protocols, rows of a relation that was never described: the source continues."""
    found = facts_of(begin(200), message, commit(200), begin(300), relation("id", "v"), insert(2, "b"), commit(300))
    (unknown,) = [log_event for log_event in found if isinstance(log_event, RowsNotLogged)]
    assert unknown.tables is None
    assert isinstance(found[found.index(unknown) - 1], TransactionBegan)
    (logged,) = [log_event.rows for log_event in found if isinstance(log_event, TransactionLogged)]
    assert logged.rows == [{"id": 2, "v": "b"}]


@pytest.mark.parametrize("message", [b"O" + bytes(8) + b"o\0", b"Y" + bytes(4), b"M\0" + bytes(8) + b"p\0" + bytes(4)])
def test_messages_that_change_no_row_are_skipped(message: bytes) -> None:
    """Origins, types, and messages that an application wrote to the log (pg_logical_emit_message)."""
    found = facts_of(message, begin(200), message, relation("id", "v"), insert(2, "b"), commit(200))
    assert [type(log_event) for log_event in found if not isinstance(log_event, CaughtUp)][-1] is TransactionLogged
    assert not [log_event for log_event in found if isinstance(log_event, RowsNotLogged)]


def test_log_sequence_numbers() -> None:
    """LSNs as the server writes them; a page's header is never a valid position."""
    assert lsn_text(lsn_of("16/B374D848")) == "16/B374D848"
    segment, page = 1 << 24, 3 * 8192
    assert record_end(page + 24, segment) == record_end(page, segment) == page
    assert record_end(page + 48, segment) == page + 48
    assert record_end(page + 40, segment) == page + 40, "a record ends 16 bytes after the header"
    assert record_end(5 * segment + 40, segment) == 5 * segment


@pytest.mark.parametrize(
    ("text", "xid", "shown"),
    [
        ("10:20:12,15", 9, True),
        ("10:20:12,15", 12, False),
        ("10:20:12,15", 13, True),
        ("10:20:12,15", 20, False),
        (f"{2**32 + 5}:{2**32 + 9}:", 2**32 - 3, True),  # the transaction ids have wrapped around
        (f"{2**32 - 5}:{2**32 - 1}:", 3, False),
    ],
)
def test_which_transactions_a_snapshot_shows(text: str, xid: int, shown: bool) -> None:
    """The log has 32 bits of their ids, a snapshot 64."""
    assert visible_of(text).shows(xid) == shown


def test_tables_are_named_by_their_ids() -> None:
    """The source's name, the schema, the table."""
    (log_event,) = facts_of(begin(200), relation("id", "v"), insert(1, "a"), commit(200))
    assert log_event.rows.table == TableId(source="s", database="public", table="t")
