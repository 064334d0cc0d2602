"""proto/fleet.proto only grows, so that older agents work with newer gateways."""

from __future__ import annotations

import json
from pathlib import Path

from google.protobuf.descriptor import Descriptor, EnumDescriptor

from ingest.fleet import fleet_pb2

RELEASED = Path(__file__).with_name("released.json")


def fields(message: Descriptor) -> dict[str, str]:
    """Return number and type of each field, by `message.field`."""
    found = {}
    for field in message.fields:
        of = field.message_type or field.enum_type
        found[f"{message.name}.{field.name}"] = f"{field.number} {field.type} {of.name if of else ''}".strip()
    for inner in message.nested_types:
        found |= fields(inner)
    return found


def values(enum: EnumDescriptor) -> dict[str, str]:
    return {f"{enum.name}.{value.name}": str(value.number) for value in enum.values}


def test_what_was_released_is_unchanged() -> None:
    """No field or value is removed, renamed or changed in number or type. Add new ones to released.json."""
    file = fleet_pb2.DESCRIPTOR
    now = {
        name: reported for message in file.message_types_by_name.values() for name, reported in fields(message).items()
    }
    now |= {name: reported for enum in file.enum_types_by_name.values() for name, reported in values(enum).items()}
    assert json.loads(RELEASED.read_text()) == now


def test_reserved_numbers_are_kept() -> None:
    """They are reserved for plugins."""
    kept = {value.name: value.number for value in fleet_pb2.DESCRIPTOR.enum_types_by_name["RequestType"].values}
    assert {name: number for name, number in kept.items() if number < 100} == {
        "Control_Config": 0, "Control_Heartbeat": 1, "Control_MySQLClient": 10, "Control_MySQLBinlog": 11,
        "Control_Syslog": 12, "Control_PgSQLClient": 13, "Control_PgSQLWal": 14, "Control_PgSQLLogDec": 15,
        "Control_Kafka": 16, "Control_MSSQLClient": 17, "Control_MaxScale": 18,
    }  # fmt: skip
