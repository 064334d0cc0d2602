"""Decide whether publishing a table would make statements of the application that writes it fail.

As soon as a publication contains a table, PostgreSQL requires a replica identity for each UPDATE or DELETE. For a
partitioned table, that of the partition counts. Source: PostgreSQL's `CheckCmdReplicaIdentity` and
`pub_contains_invalid_column`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

STORED_FROM = 180_000  # first version whose publications can contain stored generated columns


class Member(NamedTuple):
    """A table that stores rows: a plain table, or one partition of the partitioned table `root`.

    `kind` and `persistence` are those of pg_class; `identity` is the replica identity: d(efault), n(othing), f(ull) or
    i(ndex). `usable`: the index of the replica identity exists. `stored` and `virtual`: the table has generated columns
    of that kind. `generated` are the kinds in that index, as letters s and v. `file` is its relfilenode.
    """

    root: int
    oid: int
    schema: str
    name: str
    kind: str
    persistence: str
    identity: str
    usable: bool
    stored: bool
    virtual: bool
    generated: str
    file: int

    @property
    def sql(self) -> str:
        """Return the table's name for an SQL statement."""
        return '"{}"."{}"'.format(self.schema.replace('"', '""'), self.name.replace('"', '""'))


class Refusal(NamedTuple):
    """Why a table is not published, and the remedy."""

    why: str
    remedy: str


def refusal_of(
    table: str, members: Iterable[Member], *, partitioned: bool, keyed: bool, version: int, stored: bool
) -> Refusal | None:
    """Return why publishing a table would make statements fail or lose rows; None if it is safe.

    `keyed`: the table itself has a primary key. `stored`: the publication has, or will get, stored generated columns.
    """
    for one in members:
        found = _refused(table, one, version=version, stored=stored and version >= STORED_FROM)
        if found is not None:
            return found
    if partitioned and not keyed:
        return Refusal(
            f"table {table} is partitioned and has no primary key: a partition that is created later has no replica "
            "identity, and its UPDATE and DELETE would fail",
            f"ALTER TABLE {table} ADD PRIMARY KEY (…)",
        )
    return None


def _refused(table: str, one: Member, *, version: int, stored: bool) -> Refusal | None:
    who = f"table {table}" if one.root == one.oid else f"table {table}: its partition {one.schema}.{one.name}"
    if one.kind == "f":
        return Refusal(f"{who} is a foreign table, and this server's log lacks its changes", "leave the table out")
    if one.persistence == "u":
        return Refusal(f"{who} is unlogged: its changes are in no log", f"ALTER TABLE {one.sql} SET LOGGED")
    if one.identity == "n" or (one.identity in "di" and not one.usable):
        return Refusal(
            f"{who} has no replica identity: publishing it would make its UPDATE and DELETE fail",
            f"ADD PRIMARY KEY (…), or ALTER TABLE {one.sql} REPLICA IDENTITY FULL",
        )
    if version < STORED_FROM:
        if "s" in one.generated:
            return Refusal(
                f"{who} has a generated column in its replica identity, which PostgreSQL before 18 does not publish",
                "choose another primary key or REPLICA IDENTITY USING INDEX, or upgrade to PostgreSQL 18",
            )
        return None
    if (one.identity == "f" and one.virtual) or "v" in one.generated:
        return Refusal(
            f"{who} has a virtual generated column in its replica identity: publishing it would make its UPDATE and "
            "DELETE fail",
            f"make the column STORED, or ALTER TABLE {one.sql} REPLICA IDENTITY DEFAULT",
        )
    if ((one.identity == "f" and one.stored) or "s" in one.generated) and not stored:
        return Refusal(
            f"{who} has a stored generated column in its replica identity, which the publication does not have: "
            "publishing it would make its UPDATE and DELETE fail",
            "ALTER PUBLICATION … SET (publish_generated_columns = stored)",
        )
    return None


def reports_whole_rows(members: Iterable[Member]) -> bool:
    """Return whether every member logs the whole old row of each change (REPLICA IDENTITY FULL)."""
    return all(one.identity == "f" for one in members)
