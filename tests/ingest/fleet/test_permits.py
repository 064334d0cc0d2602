"""Permissions of a source's sessions, and identities of agents."""

from __future__ import annotations

import pytest

from cdc.model.errors import UsageError
from ingest.fleet.identity import FleetIdentity, identity, identity_of
from ingest.fleet.permits import Permits
from ingest.records.capture_interfaces import Record

LISTED = Permits("t", "shop", frozenset({"t.shop.d.orders"}), False)
OPEN = Permits("t", "shop", frozenset(), True)


@pytest.mark.parametrize(
    ("record", "may"),
    [
        (Record("t.shop.d.orders", b"{}", b""), True),
        (Record("t.shop.d.others", b"{}", b""), False),
        (Record("t.crm.d.orders", b"{}", b""), False),
        (Record("other.shop.d.orders", b"{}", b""), False),
        (Record("t.positions", b"t.shop", b""), False),
        (Record("t.signals", b"t.shop", b""), False),
        (Record("t.schemas", b"shop.d.orders", b""), True),
        (Record("t.schemas", b"shopping.d.orders", b""), False),
        (Record("t.schemas", b"crm.d.orders", b""), False),
        (Record("t.deadletters", b"shop.d.orders", b""), True),
        (Record("t.deadletters", b"crm.d.orders", b""), False),
        (Record("t.quarantine", b"crm.d.orders", b""), False),
        (Record("t.history", b'["change", "shop", "d", "t", 1]', b""), True),
        (Record("t.history", b'["change", "crm", "d", "t", 1]', b""), False),
        (Record("t.history", b'{"shop": 1}', b""), False),
        (Record("t.history", b"\xff", b""), False),
    ],
)
def test_a_source_writes_its_own(record: Record, may: bool) -> None:
    """It may write its topics, and its keys in shared topics; never signals or positions, which the gateway writes."""
    assert LISTED.record(record) is may


@pytest.mark.parametrize(
    ("topic", "may"),
    [
        ("t.shop.d.anything", True),
        ("t.shopping.d.orders", False),
        ("t.shop.d/../x", False),
        ("t.shop." + "x" * 300, False),
        ("t.shop.d.\u0430", False),
        ("t.shop.d.\0", False),
        ("t.schemas", False),
    ],
)
def test_a_source_that_lists_no_tables_has_topics_under_its_name(topic: str, may: bool) -> None:
    """It has topics under no other name, in any notation."""
    assert OPEN.topic(topic) is may


@pytest.mark.parametrize("name", ["../x", "A", "a/b", "", "-a", "a" * 65, "\u0430", "a\0b"])
def test_invalid_names(name: str) -> None:
    """They are refused from users and in certificates."""
    with pytest.raises(UsageError, match="is not a valid"):
        identity("acme", "agents", name)
    assert identity_of([f"tailorbird://acme/agents/{name}"]) is None


def test_an_identity_is_one_name_of_a_certificate() -> None:
    """Two identities would be ambiguous. Other names are ignored."""
    who = FleetIdentity("acme", "agents", "paris-1")
    assert identity_of(["https://acme", who.uri]) == who
    assert identity_of([who.uri, who.uri]) is None
    assert identity_of(["tailorbird://acme/agents/paris-1/x"]) is None
    assert identity_of(["tailorbird://Acme/agents/a"]) is None
    with pytest.raises(UsageError, match="tenant"):
        identity("a_b", "agents", "a")
