"""A change log that reports the schemas of a source's captured tables: the committed ones, and each that changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import orjson

from cdc.model.naming import schemas_topic
from cdc.model.schema import TableId, TableSchema, schema_from_json
from ingest.log.passing_log import PassingLog
from ingest.records.capture_interfaces import Checkpoint, OpenLog, Record, Recovered

Schemas = Mapping[TableId, TableSchema]


class SchemasLog(PassingLog[OpenLog]):
    """Passes every call to `log`. It calls `report` with all schemas of the source at the begin, and after a commit
    that contains a schema."""

    def __init__(self, log: OpenLog, topology: str, source: str, report: Callable[[Schemas], None]) -> None:
        super().__init__(log)
        self._topic, self._source, self._report = schemas_topic(topology), source, report
        self._schemas, self._appended = dict[TableId, TableSchema](), dict[TableId, TableSchema]()

    def recover(self) -> Recovered:
        """Implements `ChangeLog.recover`."""
        found = self.log.recover()
        self._schemas = {table: schema for table, schema in found.schemas.items() if table.source == self._source}
        self._report(self._schemas)
        return found

    def extend(self, records: Iterable[Record]) -> None:
        """Implements `ChangeLog.extend`."""
        listed = list(records)
        for record in listed:
            if record.topic == self._topic and record.value is not None:
                schema = schema_from_json(orjson.loads(record.value))
                self._appended[schema.table_id] = schema
        self.log.extend(listed)

    def commit(self, checkpoint: Checkpoint) -> None:
        """Implements `ChangeLog.commit`."""
        self.log.commit(checkpoint)
        if self._appended:
            self._schemas = {**self._schemas, **self._appended}
            self._appended.clear()
            self._report(self._schemas)

    def abort(self) -> None:
        """Implements `ChangeLog.abort`."""
        self._appended.clear()
        self.log.abort()
