"""Read integers and strings in the encodings of MySQL's protocol and of its newer serialization library.

Reading past the end raises IndexError or struct.error. The decoder turns these into CorruptBinlog with the event's
place.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

Buffer = bytes | memoryview

U16: Final = Struct("<H").unpack_from
U32: Final = Struct("<I").unpack_from
U64: Final = Struct("<Q").unpack_from
I64: Final = Struct("<q").unpack_from


def length_encoded(data: Buffer, at: int) -> tuple[int, int]:
    """Read a length-encoded integer. Returns the value and the offset after it.

    Raises ValueError for another first byte.
    """
    first = data[at]
    if first < 251:
        return first, at + 1
    if first == 252:
        return U16(data, at + 1)[0], at + 3
    if first == 253:
        return data[at + 1] | data[at + 2] << 8 | data[at + 3] << 16, at + 4
    if first == 254:
        return U64(data, at + 1)[0], at + 9
    raise ValueError(f"0x{first:02x} does not begin a length-encoded integer")


def encode_length(value: int) -> bytes:
    """Write a length-encoded integer."""
    if value < 251:
        return bytes((value,))
    if value < 1 << 16:
        return b"\xfc" + value.to_bytes(2, "little")
    if value < 1 << 24:
        return b"\xfd" + value.to_bytes(3, "little")
    return b"\xfe" + value.to_bytes(8, "little")


def take(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    """Return `size` bytes from offset `at`, and the offset after them. Raises ValueError if there are fewer."""
    end = at + size
    if end > len(data) or size < 0:
        raise ValueError(f"{size} bytes wanted at {at}, {max(0, len(data) - at)} left")
    return data[at:end], end


def take_encoded(data: bytes, at: int) -> tuple[bytes, int]:
    """Return a string whose length is a length-encoded integer, and the offset after it."""
    size, at = length_encoded(data, at)
    return take(data, at, size)


def take_short(data: bytes, at: int) -> tuple[bytes, int]:
    """Return a string whose length is one byte, and the offset after it."""
    return take(data, at + 1, data[at])


def variable_unsigned(data: Buffer, at: int) -> tuple[int, int]:
    """Read an unsigned integer of MySQL's serialization library. Returns the value and the offset after it.

    The number of trailing one bits in the first byte is the number of further bytes. Raises ValueError if the data ends
    before the last of up to eight further bytes.
    """
    first = data[at]
    extra = 0
    while extra < 8 and first >> extra & 1:
        extra += 1
    end = at + 1 + extra
    if end > len(data):
        raise ValueError("a variable-length integer runs past the end")
    if extra == 8:
        return int.from_bytes(data[at + 1 : end], "little"), end
    return int.from_bytes(data[at:end], "little") >> (extra + 1), end


def variable_signed(data: Buffer, at: int) -> tuple[int, int]:
    """Read a signed integer of MySQL's serialization library, whose lowest bit is the sign. Returns it and the next
    offset."""
    value, at = variable_unsigned(data, at)
    magnitude = value >> 1
    return (~magnitude if value & 1 else magnitude), at


def encode_variable(value: int) -> bytes:
    """Encode an unsigned integer for MySQL's serialization library."""
    for extra in range(8):
        if value < 1 << (7 * (extra + 1)):
            return ((value << (extra + 1)) | ((1 << extra) - 1)).to_bytes(extra + 1, "little")
    return b"\xff" + value.to_bytes(8, "little")


def bit_set(bitmap: Buffer, index: int) -> bool:
    """Return whether bit `index` of a bitmap is set. Bit 0 is the lowest bit of the first byte."""
    return bool(bitmap[index >> 3] >> (index & 7) & 1)
