"""Numbers of the binlog format: event types, column types and flags of MySQL and MariaDB.

Source: `libbinlogevents/include/binlog_event.h` and `include/field_types.h` of MySQL, `sql/event.h` of MariaDB.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

MAGIC: Final = b"\xfebin"
MAGIC_ENCRYPTED: Final = b"\xfdbin"
HEADER_SIZE: Final = 19
CHECKSUM_SIZE: Final = 4

FLAG_IN_USE: Final = 0x01
FLAG_ARTIFICIAL: Final = 0x20
FLAG_IGNORABLE: Final = 0x80

ROWS_FLAG_STATEMENT_END: Final = 0x01


class EventType(IntEnum):
    """Every event type that a server of either family has ever written."""

    UNKNOWN = 0
    START_V3 = 1
    QUERY = 2
    STOP = 3
    ROTATE = 4
    INTVAR = 5
    LOAD = 6
    SLAVE = 7
    CREATE_FILE = 8
    APPEND_BLOCK = 9
    EXEC_LOAD = 10
    DELETE_FILE = 11
    NEW_LOAD = 12
    RAND = 13
    USER_VAR = 14
    FORMAT_DESCRIPTION = 15
    XID = 16
    BEGIN_LOAD_QUERY = 17
    EXECUTE_LOAD_QUERY = 18
    TABLE_MAP = 19
    WRITE_ROWS_V0 = 20
    UPDATE_ROWS_V0 = 21
    DELETE_ROWS_V0 = 22
    WRITE_ROWS_V1 = 23
    UPDATE_ROWS_V1 = 24
    DELETE_ROWS_V1 = 25
    INCIDENT = 26
    HEARTBEAT = 27
    IGNORABLE = 28
    ROWS_QUERY = 29
    WRITE_ROWS = 30
    UPDATE_ROWS = 31
    DELETE_ROWS = 32
    GTID = 33
    ANONYMOUS_GTID = 34
    PREVIOUS_GTIDS = 35
    TRANSACTION_CONTEXT = 36
    VIEW_CHANGE = 37
    XA_PREPARE = 38
    PARTIAL_UPDATE_ROWS = 39
    TRANSACTION_PAYLOAD = 40
    HEARTBEAT_V2 = 41
    GTID_TAGGED = 42
    MARIA_ANNOTATE_ROWS = 160
    MARIA_BINLOG_CHECKPOINT = 161
    MARIA_GTID = 162
    MARIA_GTID_LIST = 163
    MARIA_START_ENCRYPTION = 164
    MARIA_QUERY_COMPRESSED = 165
    MARIA_WRITE_ROWS_COMPRESSED_V1 = 166
    MARIA_UPDATE_ROWS_COMPRESSED_V1 = 167
    MARIA_DELETE_ROWS_COMPRESSED_V1 = 168
    MARIA_WRITE_ROWS_COMPRESSED = 169
    MARIA_UPDATE_ROWS_COMPRESSED = 170
    MARIA_DELETE_ROWS_COMPRESSED = 171


EVENT_NAMES: Final[dict[int, str]] = {int(code): code.name for code in EventType}

INSERTS: Final = frozenset({20, 23, 30, 166, 169})
UPDATES: Final = frozenset({21, 24, 31, 39, 167, 170})
DELETES: Final = frozenset({22, 25, 32, 168, 171})
ROWS_EVENTS: Final = INSERTS | UPDATES | DELETES
ROWS_V2: Final = frozenset({30, 31, 32, 39, 169, 170, 171})
MARIA_COMPRESSED_ROWS: Final = frozenset({166, 167, 168, 169, 170, 171})
# Events of LOAD DATA in a statement-based log; their rows cannot be decoded without the server's parser.
STATEMENT_ROWS: Final = frozenset({6, 8, 9, 10, 11, 12, 17, 18})
# Known event types that contain no rows, so that readers may skip them.
KNOWN_WITHOUT_ROWS: Final = frozenset(
    {1, 2, 3, 4, 5, 7, 13, 14, 15, 16, 19, 26, 27, 28, 29, 33, 34, 35, 36, 37, 38, 40, 41, 42, 160, 161, 162, 163, 165}
)


def event_name(code: int) -> str:
    """Return the name of an event type, or its number if it has no name."""
    return EVENT_NAMES.get(code, f"event type {code}")


class ColumnType(IntEnum):
    """Column types in a TABLE_MAP. ENUM and SET are included, although they are logged as STRING."""

    DECIMAL = 0
    TINY = 1
    SHORT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    NULL = 6
    TIMESTAMP = 7
    LONGLONG = 8
    INT24 = 9
    DATE = 10
    TIME = 11
    DATETIME = 12
    YEAR = 13
    NEWDATE = 14
    VARCHAR = 15
    BIT = 16
    TIMESTAMP2 = 17
    DATETIME2 = 18
    TIME2 = 19
    TYPED_ARRAY = 20
    MARIA_BLOB_COMPRESSED = 140
    MARIA_VARCHAR_COMPRESSED = 141
    VECTOR = 242
    INVALID = 243
    BOOL = 244
    JSON = 245
    NEWDECIMAL = 246
    ENUM = 247
    SET = 248
    TINY_BLOB = 249
    MEDIUM_BLOB = 250
    LONG_BLOB = 251
    BLOB = 252
    VAR_STRING = 253
    STRING = 254
    GEOMETRY = 255


INTEGER_SIZES: Final = {
    ColumnType.TINY: 1,
    ColumnType.SHORT: 2,
    ColumnType.INT24: 3,
    ColumnType.LONG: 4,
    ColumnType.LONGLONG: 8,
}
