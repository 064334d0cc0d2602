"""Check what capture reads from tables against the policy of the database's host.

A checkpoint may come from a gateway that the host does not trust. It contains the tables to read, and conditions.
"""

from __future__ import annotations

from dataclasses import replace

from cdc.model.errors import Skippable, UsageError
from cdc.topology.topology import Source
from ingest.records.chunk_requests import ChunkRequest


def permitted_request(source: Source, request: ChunkRequest) -> ChunkRequest:
    """Return a request as it is safe to run. Raises Skippable if the policy forbids reading rows, or its condition.

    The policy may have changed since a signal with a condition was accepted: only that snapshot ends, not the capture.
    """
    table = request.schema.table_id
    if not source.dumps:
        what = (
            f"capture needs to read rows of table {table}"
            if request.keys
            else f"capture needs to read table {table} whole"
        )
        raise Skippable(what, "the policy of its host forbids it (dumps: false)")
    if request.where and source.conditions is not None:
        try:
            return replace(request, where=source.conditions(table, request.where))
        except UsageError as error:
            raise Skippable(error.message, error.hint) from error
    return request
