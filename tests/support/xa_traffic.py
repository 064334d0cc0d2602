"""Random transactions of one writer, XA and plain, with all committed changes in commit order."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pymysql

from tests.ingest.binlog.binlog_servers import Server

NOT_YET = 1397  # XAER_NOTA: no transaction of that XID is known, or its session still has it
Change = tuple[str, int, int | None]  # op, id, v


@dataclass
class Branch:
    """An XA transaction: its session (None after the session ended) and its changes so far."""

    xid: str
    session: Any
    tag: str
    changes: list[Change] = field(default_factory=list)
    undone: list[int] = field(default_factory=list)
    prepared: bool = False


@dataclass
class XaTraffic:
    """Writes to table `t (id, v)` of a database. `changes` are those committed; `rows` is the content of the table.

    Each change has a distinct `v`. `ended` counts ended XA transactions, `interleaved` those that ended while another
    one was open.
    """

    server: Server
    database: str
    random: Random
    most: int = 6
    changes: list[Change] = field(default_factory=list)
    rows: dict[int, int] = field(default_factory=dict)
    open: list[Branch] = field(default_factory=list)
    ended: int = 0
    interleaved: int = 0
    _serial: int = 0
    _locked: set[int] = field(default_factory=set)
    _spare: Any = None
    _free: list[Any] = field(default_factory=list)

    def _connected(self) -> Any:
        session = self.server.session(database=self.database)
        with session.cursor() as cursor:
            cursor.execute("SET SESSION transaction_isolation = 'READ-COMMITTED'" if not self.server.maria
                           else "SET SESSION tx_isolation = 'READ-COMMITTED'")  # fmt: skip
            cursor.execute("SET SESSION innodb_lock_wait_timeout = 5")
        return session

    def plain(self) -> Any:
        """The session of plain transactions."""
        if self._spare is None:
            self._spare = self._connected()
        return self._spare

    def step(self) -> None:
        """Do one step: start, continue, prepare or end a transaction, or run a plain one."""
        kind = self.random.random()
        if kind < 0.25 and len(self.open) < self.most:
            self._begin()
        elif kind < 0.5 or not self.open:
            self._plain()
        elif kind < 0.53:
            self._run(self.plain(), "FLUSH BINARY LOGS")
        else:
            branch = self.random.choice(self.open)
            if branch.prepared:
                self._end(branch)
            elif not branch.changes or self.random.random() < 0.4:
                self._change(branch)
            else:
                self._prepare(branch)

    def finish(self) -> None:
        """End every open transaction."""
        while self.open:
            branch = self.random.choice(self.open)
            if branch.prepared:
                self._end(branch)
            elif branch.changes:
                self._prepare(branch)
            else:
                self._change(branch)

    def straddling(self) -> set[int]:
        """Return the values of all prepared transactions."""
        return {v for branch in self.open if branch.prepared for _, _, v in branch.changes if v is not None}

    @staticmethod
    def _run(session: Any, *statements: str) -> None:
        with session.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def _begin(self) -> None:
        self._serial += 1
        branch = self.random.choice(("", f",'b{self._serial}'", f",'b',{self._serial % 7}"))
        xid = f"'x{self._serial}'{branch}"
        session = self._free.pop() if self._free else self._connected()
        self._run(session, f"XA START {xid}")
        self.open.append(Branch(xid, session, str(self._serial)))

    def _made(self) -> tuple[Change, str]:
        """Return a change of a row that is not locked, and its statement."""
        self._serial += 1
        serial = self._serial
        free = [key for key in self.rows if key not in self._locked]
        kind = self.random.random()
        if kind < 0.5 or not free:
            self._locked.add(serial)
            return ("c", serial, serial), f"INSERT INTO t VALUES ({serial}, {serial})"
        key = self.random.choice(free)
        self._locked.add(key)
        if kind < 0.85:
            return ("u", key, serial), f"UPDATE t SET v = {serial} WHERE id = {key}"
        return ("d", key, None), f"DELETE FROM t WHERE id = {key}"

    def _change(self, branch: Branch) -> None:
        for _ in range(self.random.choice((1, 1, 1, 2, 2, 3, 3, 30))):
            change, statement = self._made()
            self._run(branch.session, statement)
            branch.changes.append(change)
        if self.random.random() < 0.2:
            change, statement = self._made()
            self._run(branch.session, "SAVEPOINT s", statement, "ROLLBACK TO SAVEPOINT s")
            branch.undone.append(change[1])  # a rollback to a savepoint keeps the locks

    def _prepare(self, branch: Branch) -> None:
        self._run(branch.session, f"XA END {branch.xid}")
        kind = self.random.random()
        if kind < 0.15:
            self._run(branch.session, f"XA COMMIT {branch.xid} ONE PHASE")
            self._over(branch, committed=True)
        elif kind < 0.25:
            self._run(branch.session, f"XA ROLLBACK {branch.xid}")
            self._over(branch, committed=False)
        else:
            self._run(branch.session, f"XA PREPARE {branch.xid}")
            branch.prepared = True

    def _end(self, branch: Branch) -> None:
        committed = self.random.random() < 0.7
        statement = f"XA {'COMMIT' if committed else 'ROLLBACK'} {branch.xid}"
        if self.random.random() < 0.2:  # the session that prepared it is gone: another one ends it
            branch.session.close()
            branch.session = self._connected()
            self._recovered(branch.session, statement)
        else:
            self._run(branch.session, statement)
        self._over(branch, committed=committed)

    def _recovered(self, session: Any, statement: str) -> None:
        """End a transaction of another session, as soon as the server has noticed that the session is gone."""
        for _ in range(500):
            try:
                self._run(session, statement)
                return
            except pymysql.err.MySQLError as error:
                if error.args[0] != NOT_YET:
                    raise
                time.sleep(0.01)
        raise AssertionError(f"{statement}: the server does not know it")

    def _plain(self) -> None:
        made = [self._made() for _ in range(self.random.choice((1, 1, 2, 5)))]
        session = self.plain()
        self._run(session, "BEGIN")
        changes = []
        for change, statement in made:
            self._run(session, statement)
            changes.append(change)
        kind = self.random.random()
        temporary = f"CREATE TEMPORARY TABLE temp{self._serial} (a INT)"
        if self.server.flavour == "mysql57":
            temporary = "DO 1"  # with GTIDs no transaction may create a temporary table
        if kind < 0.3:
            undone, statement = self._made()
            made.append((undone, statement))
            self._run(session, "SAVEPOINT s", statement, temporary, "ROLLBACK TO SAVEPOINT s")
        if kind > 0.85:
            self._run(session, temporary, "ROLLBACK")
        else:
            self._run(session, "COMMIT")
            self._commit(changes)
        self._locked.difference_update(change[1] for change, _ in made)

    def _over(self, branch: Branch, *, committed: bool) -> None:
        self.open.remove(branch)
        self._free.append(branch.session)
        self.ended += 1
        self.interleaved += bool(self.open)
        self._locked.difference_update(branch.undone, (key for _, key, _ in branch.changes))
        if committed:
            self._commit(branch.changes)

    def _commit(self, changes: list[Change]) -> None:
        self.changes += changes
        for _, key, value in changes:
            if value is None:
                del self.rows[key]
            else:
                self.rows[key] = value

    def close(self) -> None:
        """Close all sessions."""
        for session in (*(branch.session for branch in self.open), *self._free, self._spare):
            if session is not None:
                session.close()


def changes_of(events: list[dict[str, Any]]) -> Iterator[Change]:
    """Return the changes of events, without those of a snapshot."""
    for event in events:
        if event["op"] in "cud":
            row = event["after"] or event["before"]
            yield event["op"], row["id"], None if event["op"] == "d" else row["v"]
