"""Write Debezium's envelope directly as bytes, from images that are already JSON. Nearly every change takes this path.

`cdc.formats.debezium` defines the envelope: this module writes the same keys in the same order. tests/data/envelopes
contains examples from both modules.
"""

from __future__ import annotations

import orjson

from cdc.formats.debezium import VERSION
from cdc.model.event import Position
from cdc.model.schema import TableId

NULL = b"null"
_BEFORE = b'{"before":%b,"after":%b,"source":'
_AFTER = b',"sequence":%d},"op":"%b","ts_ms":%d,"transaction":'
_ENVELOPE = _BEFORE + b"%b%d" + _AFTER
_TRANSACTION = b'{"id":%b,"total_order":%d,"data_collection_order":%d}}'
_ONLY = b'{"id":%b,"total_order":1,"data_collection_order":1}}'
_LOGGED, _ALONE = _ENVELOPE + _TRANSACTION, _ENVELOPE + b"null}"
_PARTIAL, _EXACT, _INEXACT = b'"partial":true,', b'"exact":%d,', b'"inexact_after":%d,'


class EnvelopeWriter:
    """Writes the changes of one table. Images, names and GTIDs are JSON in bytes; a missing image is `NULL`.

    All rows of a log event have the same source block except for the row number. So callers create it once per event
    (`logged`, or `read` for a snapshot), and pass it to `change` or `alone` with the row's number.
    """

    def __init__(self, topology: str, table: TableId, connector: str) -> None:
        begins = (
            f'{{"version":"{VERSION}","connector":"{connector}","name":{_json(f"{topology}.{table.source}")},"ts_ms":%d,'
        ).encode()
        ends = (
            f'"db":{_json(table.database)},"table":{_json(table.table)},"server_id":%d,"gtid":%b,'
            '"file":%b,"pos":%d,%b"row":'
        ).encode()
        self._begins = begins + b'"snapshot":"%b",' + ends
        self._one_row = _BEFORE + begins + b'"snapshot":"false",' + ends + b"0" + _AFTER + _ONLY

    def logged(
        self,
        ts_ms: int,
        server_id: int,
        gtid: bytes,
        file: bytes,
        pos: int,
        *,
        partial: bool = False,
        phase: tuple[int, int] = (0, 0),
    ) -> bytes:
        """Return the source block of an event of the log, to be completed with a row number.

        `ts_ms` (ms since 1970, the commit at the source) and `partial` are as in `cdc.model.event.SourceInfo`; `phase`
        has its `exact` and `inexact_after`.
        """
        return self._begins % (ts_ms, b"false", server_id, gtid, file, pos, flags_of(partial, phase))

    def read(self, ts_ms: int, position: Position, *, partial: bool = False, phase: tuple[int, int] = (0, 0)) -> bytes:
        """Return the source block of rows that a snapshot reads, to be completed with a row number."""
        file = orjson.dumps(position.file)
        return self._begins % (ts_ms, b"true", 0, NULL, file, position.pos, flags_of(partial, phase))

    @staticmethod
    def change(
        op: bytes, before: bytes, after: bytes, source: bytes, row: int, sequence: int, ts_ms: int,
        transaction: bytes, total_order: int, order: int,
    ) -> bytes:  # fmt: skip
        """Return the envelope of a change within a transaction of the log.

        `total_order` is its number among all changes of the transaction, `order` that among the changes of its table.
        `ts_ms` is when the change is published (ms since 1970).
        """
        return _LOGGED % (before, after, source, row, sequence, op, ts_ms, transaction, total_order, order)

    def one_row(
        self, op: bytes, before: bytes, after: bytes, ts_ms: int, server_id: int, gtid: bytes, file: bytes, pos: int,
        flags: bytes, sequence: int, now_ms: int, transaction: bytes,
    ) -> bytes:  # fmt: skip
        """Return the envelope of the only change of a transaction, like `change` with the source block of `logged`.

        `now_ms` is when the change is published (ms since 1970), `flags` are those of `flags_of`.
        """
        return self._one_row % (
            before, after, ts_ms, server_id, gtid, file, pos, flags, sequence, op, now_ms, transaction
        )  # fmt: skip

    @staticmethod
    def alone(op: bytes, before: bytes, after: bytes, source: bytes, row: int, sequence: int, ts_ms: int) -> bytes:
        """Return the envelope of a change that belongs to no transaction: a row that a snapshot read, or a marker."""
        return _ALONE % (before, after, source, row, sequence, op, ts_ms)


def _json(text: str) -> str:
    # a % in a name must survive the formatting of the bytes
    return orjson.dumps(text).decode().replace("%", "%%")


def flags_of(partial: bool, phase: tuple[int, int]) -> bytes:
    """Return the optional fields of a source block; the parameters are those of `EnvelopeWriter.logged`."""
    exact, ended = phase
    flags = _PARTIAL if partial else b""
    if exact:
        flags += _EXACT % exact
    return flags + _INEXACT % ended if ended else flags
