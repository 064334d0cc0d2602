"""Choose the tables of a database that can be captured, and the columns to ignore."""

from __future__ import annotations

import re

from cdc.model import naming
from cdc.model.errors import Skippable
from cdc.model.schema import Column
from tailorbird.deploy.draft.draft import DraftSource, ReasonedName
from tailorbird.deploy.draft.naming import snake
from tailorbird.deploy.draft.shape import FoundServer, FoundTable

_SECRET = re.compile(
    r"(^|_)(password|passwd|pwd|passphrase|secret|token|api_key|private_key|salt|ssn|iban|cvv|cvc|pin|card_number|otp)(_|$)"
)
_LARGE = re.compile(r"(tiny|medium|long)?blob|varbinary\((\d{4,}|[3-9]\d\d)\)", re.IGNORECASE)
_UNWRITABLE = re.compile(r"[\x00-\x1f]")


def source_of(topology: str, server: FoundServer) -> DraftSource:
    """Return the drafted source: the columns to ignore and the tables to leave out, each with the reason."""
    linked = {(r.child, column) for r in server.references for column in r.columns}
    linked |= {(r.parent, column) for r in server.references for column in r.referenced}
    ignored: dict[str, tuple[ReasonedName, ...]] = {}
    left: list[ReasonedName] = []
    topics = {naming.distinguished(topic) for topic in naming.control_topics(topology)}
    for table in server.tables:
        needed = {*table.key, *(name for owner, name in linked if owner == table.table_id)}
        found = [each for column in table.schema.columns if (each := _unwanted(column, needed)) is not None]
        why = _fault(topology, table, tuple(each.name for each in found), topics)
        if why:
            left.append(ReasonedName(name=table.name, why=why))
            continue
        topics.add(naming.distinguished(naming.change_topic(topology, table.table_id)))
        ignored[table.name] = tuple(found)
    return DraftSource(server=server, ignored=ignored, left=tuple(left))


def _unwanted(column: Column, needed: set[str]) -> ReasonedName | None:
    """Return the column and the reason why it should be ignored, or None to keep it.

    `needed` are the key and join columns, which are always kept."""
    try:
        _ = column.type
    except ValueError:
        return ReasonedName(name=column.name, why=f"{column.column_type} is not captured")
    if column.name in needed:
        return None
    if _LARGE.match(column.column_type):
        return ReasonedName(name=column.name, why=f"{column.column_type}: binary data")
    if _SECRET.search(snake(column.name)):
        return ReasonedName(name=column.name, why="named like a secret")
    return None


def _fault(topology: str, table: FoundTable, ignored: tuple[str, ...], topics: set[str]) -> str:
    """Return the reason why a table cannot be captured, or an empty text if it can."""
    if table.kind != "BASE TABLE":
        return f"a {table.kind.lower()}: logs contain only changes of tables; use its SELECT as a table's `query`"
    if table.engine.lower() != "innodb":
        return f"engine {table.engine} is not InnoDB: ALTER TABLE … ENGINE=InnoDB"
    if table.fault:
        return table.fault
    topic = naming.change_topic(topology, table.table_id)
    if naming.distinguished(topic) in topics:
        return f"Kafka cannot distinguish its topic {topic} from another one"
    if odd := [column.name for column in table.schema.columns if _UNWRITABLE.search(column.name)]:
        return f"column {odd[0]!r} cannot be written in a topology"
    try:
        table.published(ignored)
    except Skippable as error:
        return f"{error.message.removeprefix(f'table {table.table_id} ')}: {error.hint}"
    return ""
