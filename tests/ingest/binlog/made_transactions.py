"""Binlogs of transactions of every shape: plain, XA, savepoints, rollbacks, incidents, events of unknown types."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from struct import pack

from ingest.binlog.format.codes import EventType
from ingest.binlog.writer.writer import BinlogWriter
from tests.ingest.binlog.made_binlogs import NOW, TABLES, UUIDS

UNKNOWN = 200


@dataclass
class MadeTransactions:
    """Writes a binlog. `committed` has the committed rows (their ids) in order; `lost` counts events that may hide
    rows."""

    rng: Random
    writer: BinlogWriter = field(default_factory=BinlogWriter)
    log: list[bytes] = field(default_factory=list)
    committed: list[int] = field(default_factory=list)
    prepared: dict[str, list[int]] = field(default_factory=dict)
    lost: int = 0
    number: int = 0
    _row: int = 0

    def __post_init__(self) -> None:
        self.log.append(self.writer.begin(NOW))

    def run(self, transactions: int) -> bytes:
        """Write so many more groups of events; return the whole log."""
        for _ in range(transactions):
            kind = self.rng.random()
            if kind < 0.35:
                self._plain()
            elif kind < 0.65:
                self._xa()
            elif kind < 0.9 and self.prepared:
                self._end_prepared(self.rng.choice(list(self.prepared)))
            elif kind > 0.95:
                self._incident()
        return b"".join(self.log)

    def commit_unknown(self, xid: str) -> None:
        """Commit an XA transaction that is not in this log."""
        self._begin()
        self._query(f"XA COMMIT X'{xid}',X'',1")

    def _begin(self) -> None:
        self.number += 1
        self.log.append(self.writer.gtid(UUIDS[0], self.number, NOW))

    def _query(self, text: str) -> None:
        self.log.append(self.writer.query("d", text, NOW))

    def _insert(self) -> list[int]:
        rows = list(range(self._row, self._row + self.rng.choice((1, 1, 2, 5))))
        self._row += len(rows)
        self.log.append(self.writer.table_map(70, "d", "short", TABLES["short"], NOW))
        self.log.append(self.writer.rows("insert", 70, TABLES["short"], [{"id": row} for row in rows], NOW))
        return rows

    def _body(self) -> list[int]:
        """Write rows and savepoints; return the remaining rows."""
        rows: list[int] = []
        marks: dict[str, int] = {}
        for _ in range(self.rng.choice((1, 2, 4, 8))):
            kind = self.rng.random()
            if kind < 0.6:
                rows += self._insert()
            elif kind < 0.8:
                name = self.rng.choice(("a", "b c", "a`b"))
                marks[name] = len(rows)
                self._query(f"SAVEPOINT `{name.replace('`', '``')}`")
            elif marks:
                name = self.rng.choice(list(marks))
                del rows[marks[name] :]
                marks = {known: at for known, at in marks.items() if at <= len(rows)}
                self._query(f"ROLLBACK TO `{name.replace('`', '``')}`")
            else:
                self._query("CREATE TEMPORARY TABLE d.x (a INT)")
            if kind > 0.97:
                self._unknown()
        return rows

    def _plain(self) -> None:
        self._begin()
        self._query("BEGIN")
        rows = self._body()
        end = self.rng.random()
        if end < 0.3:
            self._query("ROLLBACK")
            return
        self.committed += rows
        if end < 0.5:
            self._query("COMMIT")
        else:
            self.log.append(self.writer.xid(self.number, NOW))

    def _xa(self) -> None:
        xid, at_once = f"{self.number:04x}", self.rng.random() < 0.2
        self._begin()
        self._query(f"XA START X'{xid}',X'',1")
        rows = self._body()
        self._query(f"XA END X'{xid}',X'',1")
        name = bytes.fromhex(xid)
        body = pack("<BIII", int(at_once), 1, len(name), 0) + name
        self.log.append(self.writer.event(EventType.XA_PREPARE, body, NOW))
        if at_once:
            self.committed += rows
        else:
            self.prepared[xid] = rows

    def _end_prepared(self, xid: str) -> None:
        rows = self.prepared.pop(xid)
        self._begin()
        if self.rng.random() < 0.7:
            self.committed += rows
            self._query(f"XA COMMIT X'{xid}',X'',1")
        else:
            self._query(f"XA ROLLBACK X'{xid}',X'',1")

    def _incident(self) -> None:
        self.lost += 1
        if self.rng.random() < 0.5:  # as MySQL writes it; MariaDB gives it no GTID
            self._begin()
        self.log.append(self.writer.event(EventType.INCIDENT, pack("<HB", 1, 4) + b"LOST", NOW))

    def _unknown(self) -> None:
        self.lost += 1
        self.log.append(self.writer.event(UNKNOWN, b"???", NOW))
