"""A gateway cannot use all replication slots of a server, and sources do not share one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from cdc.model.errors import UsageError
from cdc.topology.reader import read_topology
from ingest.postgres.pg_connection import connected
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
