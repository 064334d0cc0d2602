"""Character sets of MySQL and MariaDB: collation id → name → function from a column's bytes to text.

The decoder calls `text_decoder` once per column, and the result once per value. The result is exact for every code that
the server maps; tests compare it with the servers' CONVERT. An unknown id gives None, and the caller keeps the bytes.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from functools import cache
from typing import Final

from ingest.binlog.format.charset_tables import BIG5_ETEN, COLLATIONS, EUCJPMS_IBM, HIGH_HALVES, SWE7

BINARY_COLLATION: Final = 63

# Character sets that a Python codec decodes exactly as the server does.
PYTHON_CODECS: Final = {
    "ascii": "ascii",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1256": "cp1256",
    "cp1257": "cp1257",
    "cp850": "cp850",
    "cp852": "cp852",
    "cp932": "cp932",
    "euckr": "cp949",
    "gb18030": "gb18030",
    "gb2312": "gb2312",
    "gbk": "gbk",
    "hp8": "hp_roman8",
    "koi8r": "koi8_r",
    "latin2": "iso8859_2",
    "latin5": "iso8859_9",
    "latin7": "iso8859_13",
    "macce": "mac_latin2",
    "macroman": "mac_roman",
    "ucs2": "utf_16_be",
    "utf16": "utf_16_be",
    "utf16le": "utf_16_le",
    "utf32": "utf_32_be",
    "utf8": "utf_8",
    "utf8mb3": "utf_8",
    "utf8mb4": "utf_8",
}


def _expand(ranges: str) -> list[int]:
    ids: list[int] = []
    for part in ranges.split():
        low, _, high = part.partition("-")
        ids.extend(range(int(low), int(high or low) + 1))
    return ids


CHARSET_OF_COLLATION: Final = {number: name for name, text in COLLATIONS.items() for number in _expand(text)}


def charset_of(collation: int) -> str | None:
    """Return the character set of a collation id; None for an id that no known server has."""
    return CHARSET_OF_COLLATION.get(collation)


@cache
def _table(name: str) -> str:
    if name == "swe7":
        return "".join(SWE7.get(code, chr(code)) for code in range(128)) + "\ufffe" * 128
    return "".join(map(chr, range(128))) + HIGH_HALVES[name]


def _private_use(first: int, row: int, cell: int) -> str:
    return chr(first + (row - 0xF5) * 94 + cell - 0xA1)


def _euc_extra(error: UnicodeError) -> tuple[str, int]:
    """Decode codes of ujis and eucjpms that Python's euc_jp does not know: private use, NEC's row 13 and IBM's
    extensions."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    data, at = error.object, error.start
    lead = data[at]
    if lead == 0x8F and at + 2 < len(data):
        row, cell = data[at + 1], data[at + 2]
        if 0xF5 <= row <= 0xFE and 0xA1 <= cell <= 0xFE:
            return _private_use(0xE000 + 940, row, cell), at + 3
        index = (row - 0xF3) * 94 + cell - 0xF3
        if row in (0xF3, 0xF4) and 0 <= index < len(EUCJPMS_IBM):
            return EUCJPMS_IBM[index], at + 3
    elif at + 1 < len(data):
        cell = data[at + 1]
        if 0xF5 <= lead <= 0xFE and 0xA1 <= cell <= 0xFE:
            return _private_use(0xE000, lead, cell), at + 2
        if lead == 0xAD and 0xA1 <= cell <= 0xFC:
            shifted = cell - 0xA1 + 0x40
            return bytes((0x87, shifted + (shifted >= 0x7F))).decode("cp932"), at + 2
    raise error


def _big5_extra(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    data, at = error.object, error.start
    if data[at] == 0xF9 and at + 1 < len(data) and 0xD6 <= data[at + 1] <= 0xDC:
        return BIG5_ETEN[data[at + 1] - 0xD6], at + 2
    raise error


codecs.register_error("tailorbird-euc", _euc_extra)
codecs.register_error("tailorbird-big5", _big5_extra)

_BACKSLASH: Final = {ord("＼"): "\\"}
_EUCJPMS: Final = str.maketrans("〜‖−¢£¬¦", "～∥－￠￡￢￤")


def _ujis(raw: bytes) -> str:
    return raw.decode("euc_jp", "tailorbird-euc").translate(_BACKSLASH)


def _eucjpms(raw: bytes) -> str:
    # 8fa2b7 is a full-width tilde here and an ASCII one in Python's table; 8f never ends a character.
    return raw.replace(b"\x8f\xa2\xb7", b"\xa1\xc1").decode("euc_jp", "tailorbird-euc").translate(_EUCJPMS)


def _sjis(raw: bytes) -> str:
    return raw.decode("shift_jis").translate(_BACKSLASH)


def _big5(raw: bytes) -> str:
    return raw.decode("big5", "tailorbird-big5")


def _gb18030(raw: bytes) -> str:
    return raw.decode("gb18030").replace("\ue7c7", "ḿ")


def _plain(codec: str) -> Callable[[bytes], str]:
    def decode(raw: bytes) -> str:
        return raw.decode(codec)

    return decode


_SPECIAL: Final[dict[str, Callable[[bytes], str]]] = {
    "big5": _big5,
    "eucjpms": _eucjpms,
    "gb18030": _gb18030,
    "sjis": _sjis,
    "ujis": _ujis,
}


@cache
def text_decoder(charset: str) -> Callable[[bytes], str]:
    """Return the function from bytes in a character set to text. It raises UnicodeDecodeError for invalid bytes.

    Raises KeyError for an unknown character set.
    """
    if charset in _SPECIAL:
        return _SPECIAL[charset]
    if charset in HIGH_HALVES or charset == "swe7":
        table = _table(charset)

        def decode_single(raw: bytes) -> str:
            return codecs.charmap_decode(raw, "strict", table)[0]

        return decode_single
    return _plain(PYTHON_CODECS[charset])


def is_text(charset: str) -> bool:
    """Return whether the library can decode a character set to text; False for `binary`."""
    return charset in PYTHON_CODECS or charset in _SPECIAL or charset in HIGH_HALVES or charset == "swe7"
