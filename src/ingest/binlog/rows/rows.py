"""Decode rows events: one decoder per TABLE_MAP, one generated function per pattern of NULLs.

`TableDecoder.decode` is the hot path: a list of rows (insert, delete) or of (before, after) pairs (update). A row's
dict lacks absent columns (MINIMAL and NOBLOB images). Errors have no place; the stream adds it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import error as StructError
from typing import Any, Final

from ingest.binlog.format.canonical import Unrepresentable
from ingest.binlog.format.codes import HEADER_SIZE, MARIA_COMPRESSED_ROWS, ROWS_V2, UPDATES, ColumnType
from ingest.binlog.format.codes import EventType as T
from ingest.binlog.format.columns import LoggedColumn
from ingest.binlog.format.compressed import inflate_rows
from ingest.binlog.format.errors import BinlogError, CorruptBinlog, UndecodableValue
from ingest.binlog.format.flavour import NATIVE, Flavour
from ingest.binlog.format.packed import U16, bit_set, length_encoded
from ingest.binlog.format.tablemap import TableMap
from ingest.binlog.rows.rowcode import compile_general, compile_row
from ingest.binlog.rows.rowsource import Readers, RowFunction

MAX_PATTERNS: Final = 256
_ID_SIZE: Final = 6
# Where a rows event's data begin: after the header, the table id and the flags.
_HEAD: Final = HEADER_SIZE + _ID_SIZE + 2
# (rows event, start of its first row after the bitmap of NULLs) → all its rows.
_First = Callable[[bytes, int], list[Any]]
_NO_FIRSTS: Final[tuple[int, dict[bytes, _First]]] = (0, {})


class _Image:
    """The decoders of one set of present columns, by the bytes of the bitmap of NULLs."""

    def __init__(
        self, columns: tuple[LoggedColumn, ...], present: tuple[LoggedColumn, ...], flavour: Flavour, readers: Readers
    ) -> None:
        self._readers = readers
        self._columns, self._present, self._flavour = columns, present, flavour
        self.bitmap_size = (len(present) + 7) // 8
        self.functions: dict[bytes, RowFunction] = {}
        self._partial: dict[tuple[bytes, bytes], RowFunction] = {}
        self._general: Callable[..., Any] | None = None
        self._json = [column.index for column in columns if column.type is ColumnType.JSON]
        self.partial_size = (len(self._json) + 7) // 8

    def make(self, bitmap: bytes) -> RowFunction:
        """Return the decoder of one pattern of NULLs: compiled once, or the general one for too many patterns."""
        if len(bitmap) < self.bitmap_size:
            raise CorruptBinlog("a row ends inside its bitmap of NULLs")
        if len(self.functions) < MAX_PATTERNS:
            function = self.functions[bitmap] = compile_row(
                self._columns, self._present, self._nulls(bitmap), frozenset(), self._flavour, self._readers
            )
            return function
        if self._general is None:
            self._general = compile_general(self._columns, self._present, self._flavour, self._readers)
        return partial(self._general, n=bitmap)

    def make_partial(self, bitmap: bytes, diffs: bytes) -> RowFunction:
        """Return the decoder for one pattern of NULLs (`bitmap`), where `diffs` marks JSON columns logged as diffs."""
        function = self._partial.get((bitmap, diffs))
        if function is None:
            if len(self._partial) >= MAX_PATTERNS:
                self._partial.clear()
            chosen = frozenset(index for place, index in enumerate(self._json) if bit_set(diffs, place))
            function = compile_row(
                self._columns, self._present, self._nulls(bitmap), chosen, self._flavour, self._readers
            )
            self._partial[bitmap, diffs] = function
        return function

    def _nulls(self, bitmap: bytes) -> frozenset[int]:
        return frozenset(column.index for place, column in enumerate(self._present) if bit_set(bitmap, place))


class TableDecoder:
    """Decodes the rows events of one table definition; the stream keeps it until the TABLE_MAP's bytes change.

    `refusal` is why the rows of an unwanted table cannot be decoded; it is raised if they are requested after all. Set
    `whole` to False to see each of the table's TABLE_MAPs: no transaction is then taken whole.
    """

    def __init__(
        self,
        table: TableMap,
        flavour: Flavour = NATIVE,
        *,
        wanted: bool = True,
        refusal: BinlogError | None = None,
    ) -> None:
        self.wanted, self.whole = wanted, True
        self._refusal = refusal
        self.table = table
        self.flavour = flavour
        self._images: dict[bytes, _Image] = {}
        self._readers: Readers = {}
        self._width = len(table.columns)
        self._bitmap_size = (self._width + 7) // 8
        # The head of a rows event without extra data (its length, the width, the bitmaps) is the same in most events.
        width = 1 if self._width < 251 else 3
        self._head_sizes = {
            int(T.WRITE_ROWS): 2 + width + self._bitmap_size,
            int(T.DELETE_ROWS): 2 + width + self._bitmap_size,
            int(T.UPDATE_ROWS): 2 + width + 2 * self._bitmap_size,
        }
        self._heads: dict[bytes, tuple[_Image, _Image | None]] = {}
        # The same for a head and the NULLs of the first row, which is the only one in most events: by type, the end of
        # these bytes, and the row's decoder.
        self._firsts: dict[int, tuple[int, dict[bytes, _First]]] = {
            code: (_HEAD + size + self._bitmap_size, {}) for code, size in self._head_sizes.items()
        }

    def _image(self, body: bytes, at: int) -> _Image:
        bitmap = body[at : at + self._bitmap_size]
        image = self._images.get(bitmap)
        if image is None:
            if len(bitmap) < self._bitmap_size:
                raise CorruptBinlog("a rows event ends inside its bitmap of columns")
            # Some servers set bits after the last column; they have no meaning.
            present = tuple(column for column in self.table.columns if bit_set(bitmap, column.index))
            image = self._images[bitmap] = _Image(self.table.columns, present, self.flavour, self._readers)
        return image

    def decode(self, code: int, data: bytes, id_size: int = 6) -> list[Any]:
        """Return all rows of one rows event (with header, without checksum): dicts or tuples, pairs for an update.

        Raises Unrepresentable if the flavour requires canonical values, and one has none.
        """
        try:
            end, firsts = self._firsts.get(code, _NO_FIRSTS)
            first = firsts.get(data[_HEAD:end])
            if first is not None and id_size == _ID_SIZE:
                return first(data, end)
            return self._decode(code, data, HEADER_SIZE + id_size + 2)
        except (BinlogError, Unrepresentable):
            raise
        except UnicodeDecodeError as error:
            raise UndecodableValue(
                f"a text in {self.table.name} is not valid {error.encoding}: {error.reason}",
                "the column's bytes are in another character set; correct the column, or read it as binary",
            ) from error
        except (StructError, IndexError, KeyError, ValueError, OverflowError, ArithmeticError, RecursionError) as error:
            # not the error's text, because it may contain a value
            raise CorruptBinlog(
                f"a rows event of {self.table.name} cannot be decoded: {type(error).__name__}"
            ) from error

    def _decode(self, code: int, body: bytes, at: int) -> list[Any]:
        if self._refusal is not None:
            raise self._refusal
        size = self._head_sizes.get(code, 0)
        head = body[at : at + size]
        images = self._heads.get(head) if size else None
        if images is not None:
            old, new = images
            end, firsts = self._firsts[code]
            if at + size + old.bitmap_size == end and len(firsts) < MAX_PATTERNS:
                function = old.functions.get(body[at + size : end])
                if function is not None:
                    firsts[body[at:end]] = _first(function, old) if new is None else _first_pair(function, old, new)
            return _single(old, body, at + size, []) if new is None else _pairs(old, new, body, at + size, [])
        if code in ROWS_V2:
            extra = U16(body, at)[0]
            if extra < 2:
                raise CorruptBinlog("the extra data of a rows event are shorter than their length")
            at += extra
        width, at = length_encoded(body, at)
        if width != self._width:
            raise CorruptBinlog(f"a rows event has {width} columns, but its TABLE_MAP has {self._width}")
        before = self._image(body, at)
        at += self._bitmap_size
        if code not in UPDATES:
            if code in MARIA_COMPRESSED_ROWS:
                body, at = inflate_rows(body, at), 0
            self._remember(head, size, before, None)
            return _single(before, body, at, [])
        after = self._image(body, at)
        at += self._bitmap_size
        self._remember(head, size, before, after)
        if code in MARIA_COMPRESSED_ROWS:
            body, at = inflate_rows(body, at), 0
        if code == T.PARTIAL_UPDATE_ROWS:
            return _partial_pairs(before, after, body, at)
        return _pairs(before, after, body, at, [])

    def _remember(self, head: bytes, size: int, before: _Image, after: _Image | None) -> None:
        """Cache the images of a head. Heads with extra data have another length and are not cached."""
        if size and len(head) == size and head[:2] == b"\x02\x00" and len(self._heads) < 64:
            self._heads[head] = (before, after)


def _torn() -> CorruptBinlog:
    return CorruptBinlog("a row runs past the end of its event")


def _first(function: RowFunction, image: _Image) -> _First:
    def first(body: bytes, at: int) -> list[Any]:
        row, at = function(body, at)
        return [row] if at == len(body) else _single(image, body, at, [row])

    return first


def _first_pair(function: RowFunction, before: _Image, after: _Image) -> _First:
    functions, size = after.functions, after.bitmap_size

    def first(body: bytes, at: int) -> list[Any]:
        old, at = function(body, at)
        nulls = body[at : at + size]
        new, at = (functions.get(nulls) or after.make(nulls))(body, at + size)
        return [(old, new)] if at == len(body) else _pairs(before, after, body, at, [(old, new)])

    return first


def _single(image: _Image, body: bytes, at: int, rows: list[Any]) -> list[Any]:
    """Append the rows from `at` to the event's end to `rows`."""
    functions, size, end = image.functions, image.bitmap_size, len(body)
    while at < end:
        nulls = body[at : at + size]
        row, at = (functions.get(nulls) or image.make(nulls))(body, at + size)
        rows.append(row)
        if not size:
            break
    if at != end:
        raise _torn()
    return rows


def _pairs(before: _Image, after: _Image, body: bytes, at: int, rows: list[Any]) -> list[Any]:
    """Append the pairs from `at` to the event's end to `rows`."""
    old_functions, new_functions, end = before.functions, after.functions, len(body)
    old_size, new_size = before.bitmap_size, after.bitmap_size
    while at < end:
        nulls = body[at : at + old_size]
        old, at = (old_functions.get(nulls) or before.make(nulls))(body, at + old_size)
        nulls = body[at : at + new_size]
        new, at = (new_functions.get(nulls) or after.make(nulls))(body, at + new_size)
        rows.append((old, new))
        if not old_size and not new_size:
            break
    if at != end:
        raise _torn()
    return rows


def _partial_pairs(before: _Image, after: _Image, body: bytes, at: int) -> list[Any]:
    rows: list[Any] = []
    end = len(body)
    while at < end:
        nulls = body[at : at + before.bitmap_size]
        old, at = (before.functions.get(nulls) or before.make(nulls))(body, at + before.bitmap_size)
        options, at = length_encoded(body, at)
        if options > 1:
            raise CorruptBinlog(f"an update has value options {options:#x}, but only 1 is supported")
        if options:
            diffs = body[at : at + after.partial_size]
            at += after.partial_size
            nulls = body[at : at + after.bitmap_size]
            function = after.make_partial(nulls, diffs)
        else:
            nulls = body[at : at + after.bitmap_size]
            function = after.functions.get(nulls) or after.make(nulls)
        new, at = function(body, at + after.bitmap_size)
        rows.append((old, new))
    if at > end:
        raise _torn()
    return rows
