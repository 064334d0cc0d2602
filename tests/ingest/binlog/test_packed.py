"""Integers of MySQL's serialization library that end before their last byte."""

from __future__ import annotations

import pytest

from ingest.binlog.format.packed import variable_unsigned


@pytest.mark.parametrize(("encoded", "value"), [(b"\x0a", 5), (b"\xff" + b"\x01" * 8, 0x0101010101010101)])
def test_an_integer_that_ends_early_is_refused(encoded: bytes, value: int) -> None:
    """A shorter number would be wrong, without an error."""
    assert variable_unsigned(encoded, 0) == (value, len(encoded))
    for end in range(1, len(encoded)):
        with pytest.raises(ValueError, match="past the end"):
            variable_unsigned(encoded[:end], 0)
