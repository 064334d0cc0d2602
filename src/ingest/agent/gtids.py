"""GTID sets of MySQL: which transactions have been read, as server uuid → intervals.

Text form as `gtid_executed` prints it: `uuid:1-5:7,uuid:1`. Intervals here are closed and kept sorted and apart.
"""

from __future__ import annotations

from bisect import bisect_right


class GtidSet:
    """A set of GTIDs that grows one transaction at a time; ValueError for text that is none."""

    def __init__(self, text: str = "") -> None:
        self._intervals: dict[str, list[tuple[int, int]]] = {}
        for part in text.replace("\n", "").split(","):
            if not part.strip():
                continue
            uuid, *spans = part.strip().split(":")
            if len(uuid) != 36 or not spans:
                raise ValueError(f"not a GTID set: {text!r}")
            for span in spans:
                first, _, last = span.partition("-")
                self._add(uuid.lower(), int(first), int(last or first))

    def add(self, gtid: str) -> None:
        """Add one GTID `uuid:number`; adding it twice changes nothing."""
        uuid, _, number = gtid.partition(":")
        self._add(uuid.lower(), int(number), int(number))

    def __contains__(self, gtid: str) -> bool:
        uuid, _, number = gtid.partition(":")
        spans, n = self._intervals.get(uuid.lower(), []), int(number)
        i = bisect_right(spans, (n, 2**63)) - 1
        return i >= 0 and spans[i][0] <= n <= spans[i][1]

    def _add(self, uuid: str, first: int, last: int) -> None:
        if not 1 <= first <= last:
            raise ValueError(f"GTID interval {first}-{last}")
        spans = self._intervals.setdefault(uuid, [])
        if spans and spans[-1][1] + 1 == first:  # the next transaction of the same server: by far the usual case
            spans[-1] = (spans[-1][0], last)
            return
        merged: list[tuple[int, int]] = []
        for low, high in sorted([*spans, (first, last)]):
            if merged and low <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
            else:
                merged.append((low, high))
        self._intervals[uuid] = merged

    def __str__(self) -> str:
        return ",".join(
            ":".join([uuid, *(str(a) if a == b else f"{a}-{b}" for a, b in spans)])
            for uuid, spans in sorted(self._intervals.items())
        )
