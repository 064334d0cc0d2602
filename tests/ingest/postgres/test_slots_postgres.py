"""A gateway cannot use all replication slots of a server, and sources do not share one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest

from cdc.model.errors import Retriable, UsageError
from cdc.topology.reader import read_topology
from ingest.postgres.pg_connection import PgConnection, connected
from ingest.postgres.pg_slot import have_slot, names_of
from tests.support.pg_captured import topology_text
from tests.support.pg_servers import PgServer

_SLOTS = "SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE 'tailorbird\\_%'"


@pytest.mark.integration
def test_slots_are_limited_by_the_policy(postgres_server: PgServer, unique: Callable[[str], str]) -> None:
    """Sources that a gateway assigns and withdraws leave slots; at the limit no further one is created."""
    name = unique("slots")
    with postgres_server.session() as owner:
        owner.execute(f"CREATE DATABASE {name} OWNER app")
        ((before,),) = owner.execute(_SLOTS).fetchall()
        source = read_topology(topology_text(postgres_server, name, "[t]"), file="t.yml", environ={}).sources["shop"]
        made = [replace(source, name=f"s{number}", most_slots=before + 2) for number in range(4)]
        names = [names_of(name, one) for one in made]
        try:
            with connected(source) as connection:
                for one, its in zip(made[:2], names[:2], strict=True):
                    have_slot(connection, one, its)
                    have_slot(connection, one, its)  # it exists already
                with pytest.raises(UsageError, match=rf"has {before + 2} slots .*slots: N"):
                    have_slot(connection, made[2], names[2])
                assert owner.execute(_SLOTS).fetchall() == [(before + 2,)]
                have_slot(connection, replace(made[2], most_slots=None), names[2])  # without a policy
                owner.execute(f"SELECT pg_drop_replication_slot('{names[0].slot}')")
                owner.execute(f"SELECT pg_drop_replication_slot('{names[2].slot}')")
                have_slot(connection, made[3], names[3])
        finally:
            owner.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s", (name,)
            )
            owner.execute(f"DROP DATABASE {name} WITH (FORCE)")


class FakeServer:
    """A server with slots of Tailorbird, of which the source's own may be lost. It records the statements."""

    version = 160_000

    def __init__(self, number: int, lost: bool = False, free: bool = True, more: int = 0) -> None:
        self.number, self.lost, self.free, self.more = number, lost, free, more
        self.statements = list[str]()

    def texts(self, statement: str) -> list[tuple[str, ...]]:
        self.statements.append(statement)
        if "count(*)" in statement:
            return [(str(self.number),)]
        if "advisory" in statement:
            return [("yes" if self.free else "no",)]
        return [("pgoutput", "d", "lost", "", "", "", "")] if self.lost else []

    def query(self, statement: str) -> None:
        self.statements.append(statement)
        self.number += self.more if "pg_create" in statement else 0

    def slots(self) -> list[str]:
        """Return the statements that create or drop slots, or unlock their count."""
        return [one.split("(")[0].removeprefix("SELECT pg_") for one in self.statements if one.startswith("SELECT pg_")]


def limited(server: FakeServer) -> None:
    text = "{type: postgresql, hostname: h, username: u, password: p, dbname: d, tables: [t]}"
    source = read_topology(f"name: t\nsources: {{shop: {text}}}", file="t.yml", environ={}).sources["shop"]
    source = replace(source, most_slots=2)
    have_slot(cast("PgConnection", server), source, names_of("t", source))


def test_a_lost_slot_is_created_again_above_the_limit() -> None:
    """It is no further one: the owner may have lowered the limit since."""
    server = FakeServer(5, lost=True)
    limited(server)
    assert server.slots() == ["drop_replication_slot", "create_logical_replication_slot", "advisory_unlock"]


def test_slots_are_counted_and_created_by_one_source_at_a_time() -> None:
    """Two sources that start together would otherwise both drop theirs."""
    server = FakeServer(1, free=False)
    with pytest.raises(Retriable, match="another source is creating its replication slot"):
        limited(server)
    assert server.slots() == []
    server = FakeServer(1, more=2)  # another database's source created one, too
    with pytest.raises(UsageError, match="has 3 slots"):
        limited(server)
    assert server.slots() == ["create_logical_replication_slot", "drop_replication_slot", "advisory_unlock"]
    server = FakeServer(2)
    with pytest.raises(UsageError, match="has 2 slots"):
        limited(server)
    assert server.slots() == ["advisory_unlock"]


def test_long_names_stay_distinct() -> None:
    """PostgreSQL cuts names at 63 bytes. Shorter names are those of earlier versions."""
    text = "{type: postgresql, hostname: h, username: u, password: p, dbname: d, tables: [t]}"
    source = read_topology(f"name: t\nsources: {{shop: {text}}}", file="t.yml", environ={}).sources["shop"]
    assert names_of("t", source).slot == "tailorbird_t_shop"
    exact = replace(source, name="s" * (63 - len("tailorbird_t_")))
    assert names_of("t", exact).publication == f"tailorbird_t_{exact.name}"
    long = [replace(source, name="s" * 60 + end) for end in ("", "_a", "_b")]
    found = {names_of("t" * 40, one).slot for one in long}
    assert (len(found), {len(name) for name in found}) == (3, {63})
    assert {names_of("t" * 40, one).publication for one in long} == found
