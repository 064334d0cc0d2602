"""Names that Avro allows: letters, digits and `_`, and no digit in front."""

from __future__ import annotations

import re
from collections.abc import Iterable


def avro_name(text: str) -> str:
    """Return a name with every other character replaced by `_`, as Debezium's `avro` name adjustment does."""
    name = re.sub(r"\W", "_", text, flags=re.ASCII)
    return f"_{name}" if not name or name[0].isdigit() else name


def avro_names(names: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """Return a name for each of these, in their order. They differ from each other and from `taken`, also if case does
    not count."""
    used, found = {name.lower() for name in taken}, list[str]()
    for text in names:
        name = avro_name(text)
        while name.lower() in used:
            name += "_"
        used.add(name.lower())
        found.append(name)
    return found
