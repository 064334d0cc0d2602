"""Compare the formats that are stored with those that a version reads and writes.

A record without a number has format 1. Data that can be computed again, such as ledgers, is not compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from cdc.formats.position_records import CHANGED, WHOLE
from cdc.model.errors import UsageError
from cdc.model.history import FORMAT as HISTORY
from cdc.process.kafka_foreign import FORMAT as CHECKS
from cdc.stored.layout import FORMATS as LAYOUTS
from cdc.topology.versions import FORMAT as VERSIONS
from indexer.rebuild.targets import FORMAT as TARGETS
from joins.engine.file_checkpoint import FORMAT as CHECKPOINT
from joins.query.plan import STATE_FORMATS
from tailorbird.provision.journal import FORMAT as JOURNAL

State = Literal["kept", "rewritten", "unreadable", "rebuilt"]
JOIN_STATE = "join state"
EXIT: Mapping[State, int] = {"kept": 0, "rewritten": 1, "rebuilt": 1, "unreadable": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatSupport:
    """The formats of one kind of data that a version reads, and the greatest that it writes by itself."""

    reads: tuple[int, ...]
    writes: int


# Layouts and states have the lowest format that can represent them, so an upgrade alone writes no greater one. A table
# whose state gets another one is rebuilt: its plan says so.
INSTALLED: Mapping[str, FormatSupport] = {
    "positions": FormatSupport(reads=(WHOLE, CHANGED), writes=CHANGED),
    "schema history": FormatSupport(reads=(HISTORY,), writes=HISTORY),
    "table versions": FormatSupport(reads=(VERSIONS,), writes=VERSIONS),
    "check results": FormatSupport(reads=(CHECKS,), writes=CHECKS),
    "layouts": FormatSupport(reads=LAYOUTS, writes=LAYOUTS[0]),
    "checkpoints": FormatSupport(reads=(CHECKPOINT,), writes=CHECKPOINT),
    JOIN_STATE: FormatSupport(reads=STATE_FORMATS, writes=STATE_FORMATS[0]),
    "index collections": FormatSupport(reads=(TARGETS,), writes=TARGETS),
    "apply journal": FormatSupport(reads=(JOURNAL,), writes=JOURNAL),
}


# The greatest format that every released version reads, since 0.2.0. Positions of a quiet source have format 1 only.
EVERY_RELEASE: Mapping[str, int] = {"positions": CHANGED}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFormat:
    """A format of one kind that is stored at a place, such as a source or a table."""

    name: str
    place: str
    format: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatFinding:
    """The effect of a version on a stored format, or on the table of a join.

    - `kept`: it reads it, and another version that reads it now can still read it later.
    - `rewritten`: it writes a newer format, which the other version does not read.
    - `unreadable`: it does not read it. `rebuilt`: the table is computed again from the log."""

    name: str
    place: str
    stored: int | None
    state: State
    why: str

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that `--json` prints."""
        return {"kind": "format", **asdict(self)}


def findings(
    stored: Iterable[StoredFormat], version: Mapping[str, FormatSupport], back: Mapping[str, FormatSupport] | None
) -> Iterator[FormatFinding]:
    """Yield what a version does with stored formats. `back` is the version to return to; None: the one that wrote them,
    of which only the stored formats are known, and those that every released version reads."""
    places = dict[tuple[str, str], set[int]]()
    for one in stored:
        places.setdefault((one.name, one.place), set()).add(one.format)
    for (name, place), numbers in places.items():
        support, greatest = version.get(name), max(numbers)
        if support is None or not numbers <= set(support.reads):
            known = "none" if support is None else ", ".join(map(str, support.reads))
            state: State = "rebuilt" if name == JOIN_STATE else "unreadable"
            why = f"format {greatest} is stored, the version reads {known}"
        elif support.writes in (
            back[name].reads if back and name in back else range(1, max(greatest, EVERY_RELEASE.get(name, 0)) + 1)
        ):
            state, why = "kept", f"format {greatest}"
        else:
            state, why = "rewritten", f"format {greatest} is stored, the version writes {support.writes}"
        yield FormatFinding(name=name, place=place, stored=greatest, state=state, why=why)


def to_json(version: Mapping[str, FormatSupport]) -> dict[str, Any]:
    """Return the JSON object of `tailorbird upgrade --formats`."""
    return {name: {"reads": list(one.reads), "writes": one.writes} for name, one in version.items()}


def from_json(content: Any) -> dict[str, FormatSupport]:
    """Parse what `to_json` returned, perhaps in another version. Raises UsageError."""
    try:
        return {
            str(name): FormatSupport(reads=tuple(map(int, one["reads"])), writes=int(one["writes"]))
            for name, one in content.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        what = f"not the formats of a version: {error!r}"
        raise UsageError(what, "use the output of `tailorbird upgrade --formats` of that version") from error
