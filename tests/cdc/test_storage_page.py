"""docs/storage.md documents the stored bytes: its examples are encoded and decoded here, byte by byte."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from cdc.model.types import Canonical, Kind, parse_type
from cdc.stored.cells import NULLS, RowCodec, load_barrier
from cdc.stored.layout import dump_layout, load_layout
from cdc.stored.traces import Origin, entries_of
from cdc.stored.values import decoder, encoder

PAGE = (Path(__file__).parents[2] / "docs" / "storage.md").read_text()
TYPES = re.findall(r"^\| `([^`]+)` \|[^|\n]+\|[^|\n]+\| `([^`]+)` \| `([^`]+)` \|$", PAGE, re.MULTILINE)
BLOCKS: list[Any] = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]
ROW: dict[str, Canonical] = {"id": 17, "status": "paid", "tags": "", "total": "12.30", "customer": None}


def test_every_type_is_reported() -> None:
    """The page documents every type."""
    assert {parse_type(name).kind for name, _, _ in TYPES} == set(get_args(Kind))


@pytest.mark.parametrize(("name", "value", "stored"), TYPES, ids=[name for name, _, _ in TYPES])
def test_the_bytes_of_each_type(name: str, value: str, stored: str) -> None:
    """A reader in another language that follows the page reads the right values."""
    type_, canonical, cell = parse_type(name), json.loads(value), bytes.fromhex(stored)
    assert encoder(type_)(canonical).hex(" ") == cell.hex(" ")
    assert decoder(type_)(cell) == canonical


def test_the_row_of_the_page() -> None:
    """Key, cells and bits match the layout on the page."""
    layout = load_layout(json.dumps(BLOCKS[0]).encode())
    assert json.loads(dump_layout(layout)) == BLOCKS[0]
    codec = RowCodec(layout)
    cells = codec.cells(ROW, batch=7, ts_ms=0)
    reported = PAGE.split("Example with this layout")[1].partition("```json")[0]
    shown = dict(re.findall(r"^\| `?([\w ]+?)`? \| (?:`([0-9a-f ]+)` )?\|$", reported, re.MULTILINE))
    assert shown.pop("row key") == codec.row_key(ROW).hex(" ")
    assert shown.keys() == {*ROW, "_nulls", "_layout", "_batch"}
    assert {name: cells[name.encode()].hex(" ") for name in shown} == shown
    assert cells[NULLS] == b"\x10"


def test_the_keys_that_may_be_null() -> None:
    """NULL, the empty text and a text have the documented keys, under the layout of format 2."""
    layout = load_layout(json.dumps(BLOCKS[1]).encode())
    assert json.loads(dump_layout(layout)) == BLOCKS[1]
    shown = re.findall(r"^\| `([^`]+)` \| `([0-9a-f ]+)` \|$", PAGE.partition('"nullable_key"')[2], re.MULTILINE)
    assert [json.loads(value) for value, _ in shown] == [None, "", "EU"]
    for value, key in shown:
        assert RowCodec(layout).row_key({"region": json.loads(value)}).hex(" ") == key


def test_the_entry_of_the_page() -> None:
    """The entry has the documented node, partition and offset."""
    shown = re.findall(r"The entry `([0-9a-f ]+)` is table (\d+), partition (\d+), offset (\d+)", PAGE)
    assert [list(entries_of(bytes.fromhex(entry))) for entry, *_ in shown] == [[Origin(1, 2, 4711)]]
    assert shown[0][1:] == ("1", "2", "4711")


def test_the_barrier_of_the_page() -> None:
    """The barrier is read as written."""
    barrier = load_barrier(json.dumps(BLOCKS[2]).encode())
    assert json.loads(barrier.to_bytes()) == BLOCKS[2]
