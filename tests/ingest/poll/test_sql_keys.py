"""Keys of polled tables passed between two processes: JSON restores exactly the same values."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from typing import Any

import orjson
import pytest
import sqlalchemy as sa

from cdc.model.errors import UsageError
from ingest.poll.sql_keys import key_of, stored_key, unwalkable


def test_a_key_survives_its_process() -> None:
    """A dump continues after the same row: no value changes its type or a digit."""
    key = [
        -5, "Zoë'%", 0.1, True, decimal.Decimal("12.50"), dt.datetime(2026, 1, 2, 3, 4, 5, 6),
        dt.datetime(2026, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=2))), dt.date(2026, 1, 2), dt.time(1, 2, 3, 4),
        uuid.UUID(int=7), b"\x00\xff",
    ]  # fmt: skip
    found = key_of(orjson.loads(orjson.dumps(stored_key(key))))
    assert found == key
    assert [type(value) for value in found] == [type(value) for value in key]
    assert key_of(stored_key([memoryview(b"ab")])) == [b"ab"]
    with pytest.raises(UsageError, match="timedelta"):
        stored_key([dt.timedelta(1)])


def test_keys_with_another_sort_order_are_not_walked() -> None:
    """MySQL sorts an ENUM by its number but compares it by its text, and a FLOAT equals no literal: rows would be
    skipped."""
    enum: sa.Column[Any] = sa.Column("e", sa.Enum("b", "a"))
    real: sa.Column[Any] = sa.Column("f", sa.Float())
    assert "e is VARCHAR" in unwalkable([enum], "mysql")
    assert "f is FLOAT" in unwalkable([real], "mariadb")
    assert unwalkable([enum, real], "postgresql") == ""
