"""Index every text of a binlog into Solr: the reference application of `ingest.binlog`, in a hundred lines.

    python examples/fulltext.py mysql://cdc:cdc@127.0.0.1:3307 http://127.0.0.1:8983/solr/texts

The collection uses this project's configset. A document is a row: `_id` names it, `table` its table, `text` holds its
words. Documents are fenced by the row's place in the binlog, so that reading a part again changes nothing.
"""

from __future__ import annotations

import sys
from typing import Any

import pysolr
import requests

from cdc.model.errors import TailorbirdError
from ingest.binlog import ContentHandler, TransactionAggregator, open_binlog, parse_position
from ingest.binlog.format.flavour import ABSENT
from ingest.binlog.format.tablemap import TableMap
from ingest.binlog.reading.events import Incident, Rows, Transaction
from ingest.binlog.reading.rowset import Converter, RowEventSet, TypedRow

FIELDS = [
    {"name": "table", "type": "string", "stored": True},
    {"name": "text", "type": "words", "stored": True, "multiValued": True},
]


class FullTextIndexer(ContentHandler):
    """Consumes whole transactions and writes their rows into Solr; everything else passes by."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._solr = pysolr.Solr(url, timeout=30)
        self._converter = Converter()
        known = {field["name"] for field in requests.get(f"{url}/schema/fields", timeout=30).json()["fields"]}
        for field in FIELDS:
            if field["name"] not in known:
                requests.post(f"{url}/schema", json={"add-field": field}, timeout=30).raise_for_status()

    def process_transaction(self, event: Transaction) -> None:
        fence = self._fence(event)
        for number, rows in enumerate(each for each in event.events if isinstance(each, Rows)):
            table = rows.table
            for before, after in RowEventSet(rows).pairs():
                version = fence + min(number, 0xFFFF)
                if before is not None and (after is None or self._key(table, before) != self._key(table, after)):
                    self._delete(self._key(table, before), version)
                if after is not None:
                    self._solr.add([self._document(table, after, version)])
        self._solr.commit()

    @staticmethod
    def _fence(event: Transaction) -> int:
        """A number that grows along the binlog: the file's number, the position in it, room for a batch's number."""
        return int(event.file.rsplit(".", 1)[-1]) << 48 | event.offset << 16

    @staticmethod
    def _key(table: TableMap, row: TypedRow) -> str:
        """The row's primary key, or all its values where the table has none."""
        places = [index for index, _ in table.primary_key] or range(len(row))
        return f"{table.name}:" + ":".join(str(row[place].raw) for place in places)

    def _document(self, table: TableMap, row: TypedRow, version: int) -> dict[str, Any]:
        texts = [self._converter.to_text(v) for v in row if v.raw is not ABSENT and not isinstance(v.raw, bytes)]
        return {
            "_id": self._key(table, row),
            "_fence": version,
            "_kind": "row",
            "table": table.name,
            "text": [text for text in texts if text],
        }

    def _delete(self, key: str, version: int) -> None:
        command = {"delete": {"id": key}}
        answer = requests.post(f"{self._url}/update", params={"fence": str(version)}, json=command, timeout=30)
        answer.raise_for_status()


def main(uri: str, url: str, start: str = "") -> int:
    """Read until the binlog ends (or for ever, from a server that is followed); 1 if the reader failed."""
    binlog = open_binlog(uri, background=True)
    binlog.content_handlers.append(TransactionAggregator())
    binlog.content_handlers.append(FullTextIndexer(url))
    if start:
        binlog.set_position(parse_position(start))
    binlog.connect()
    for event in binlog:
        if isinstance(event, Incident):
            print(f"fulltext: {event.message}", file=sys.stderr)
            return getattr(event.error, "exit_code", 1)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:4]))
    except TailorbirdError as error:
        sys.exit(f"fulltext: {error}")
