"""Write Debezium's envelope as bytes, around images that are already JSON: the path of every change.

`cdc.formats.debezium` defines the result, key for key and in which order. tests/data/envelopes contains examples of
both, which every reader of Tailorbird has to read alike.
"""

from __future__ import annotations

import orjson

from cdc.formats.debezium import VERSION
from cdc.model.event import Position
from cdc.model.schema import TableId

NULL = b"null"
_ENVELOPE = b'{"before":%b,"after":%b,"source":%b%d,"sequence":%d},"op":"%b","ts_ms":%d,"transaction":'
_TRANSACTION = b'{"id":%b,"total_order":%d,"data_collection_order":%d}}'
_LOGGED, _ALONE = _ENVELOPE + _TRANSACTION, _ENVELOPE + b"null}"
_PARTIAL = b'"partial":true,'


class EnvelopeWriter:
    """Writes the changes of one table. Images, names and GTIDs are JSON; a missing image is `NULL`.

    All rows of an event of the log have the same source except for the row number. So it is written once (`logged`,
    `read`) and passed to `change` and `alone` together with the number.
    """

    def __init__(self, topology: str, table: TableId, connector: str) -> None:
        self._begins = (
            f'{{"version":"{VERSION}","connector":"{connector}","name":{_json(f"{topology}.{table.source}")},"ts_ms":%d,'
            f'"snapshot":"%b","db":{_json(table.database)},"table":{_json(table.table)},"server_id":%d,"gtid":%b,'
            '"file":%b,"pos":%d,%b"row":'
        ).encode()

    def logged(self, ts_ms: int, server_id: int, gtid: bytes, file: bytes, pos: int, *, partial: bool = False) -> bytes:
        """Return the source block of an event of the log; `partial` as in `cdc.model.event.SourceInfo`."""
        return self._begins % (ts_ms, b"false", server_id, gtid, file, pos, _PARTIAL if partial else b"")

    def read(self, ts_ms: int, position: Position, *, partial: bool = False) -> bytes:
        """Return the source block of rows that a snapshot reads."""
        file, reported = orjson.dumps(position.file), _PARTIAL if partial else b""
        return self._begins % (ts_ms, b"true", 0, NULL, file, position.pos, reported)

    @staticmethod
    def change(
        op: bytes, before: bytes, after: bytes, source: bytes, row: int, sequence: int, ts_ms: int,
        transaction: bytes, total_order: int, order: int,
    ) -> bytes:  # fmt: skip
        """Return a change of the log in its transaction, with its number among all changes there, and among those of
        the table."""
        return _LOGGED % (before, after, source, row, sequence, op, ts_ms, transaction, total_order, order)

    @staticmethod
    def alone(op: bytes, before: bytes, after: bytes, source: bytes, row: int, sequence: int, ts_ms: int) -> bytes:
        """Return a change outside of any transaction of the log: a row that a snapshot read, or a marker."""
        return _ALONE % (before, after, source, row, sequence, op, ts_ms)


def _json(text: str) -> str:
    # a % in a name must survive the formatting of the bytes
    return orjson.dumps(text).decode().replace("%", "%%")
