"""Run the index stage of `tailorbird verify`: connect to HBase and Solr, compare each index, repair it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from cdc.process.file_topology import home
from cdc.stored import fields
from cdc.topology.topology import Index, Table
from indexer.engine.engine import open_collection
from tailorbird.verify.findings import Verdict
from tailorbird.verify.index.file_leaves import LeavesFile
from tailorbird.verify.index.hbase_row_documents import RowDocuments
from tailorbird.verify.index.index_stage import IndexStage, Sample
from tailorbird.verify.index.routine_stage import RoutineStage
from tailorbird.verify.index.run_index_repair import repaired
from tailorbird.verify.index.solr_documents import VisibleDocuments
from tailorbird.verify.index.zk_identity import IndexIdentity
from tailorbird.verify.request import Request, StageResult, Terminal
from tailorbird.verify.settling import settling_policy

if TYPE_CHECKING:
    from tailorbird.verify.index.opensearch_documents import OpenSearchDocuments

_BETWEEN_LOOKS = 1.0  # seconds
_TURN_SECONDS = 3600
# Additional fields; they identify the version of the row that a document represents.
_RESERVED = (fields.FENCE, fields.KIND, fields.TS, fields.BATCH, fields.LAYOUT)


def verify_indexes(request: Request, terminal: Terminal) -> Iterator[StageResult]:
    """Compare each index with its table, and repair it if requested. Raises Retriable while a server is unavailable."""
    topology = request.topology
    for index in topology.indexes.values():
        if index.table in topology.foreign_tables and request.everything:
            yield StageResult(verdict=_foreign(index))
        elif index.table in request.tables:
            yield _verified(request, topology.tables[index.table], index, terminal)


def _foreign(index: Index) -> Verdict:
    why = f"index {index.name} is over an external table, which has neither barriers nor a Tailorbird layout"
    return Verdict(stage="index", table=index.table, cut="no cut", unknown=(why,), until="topology")


def _verified(request: Request, table: Table, index: Index, terminal: Terminal) -> StageResult:
    topology = request.topology
    with ExitStack() as opened:
        collection = opened.enter_context(closing(open_collection(topology, index)))
        rows = RowDocuments(topology, table, index, know=collection.know_fields, fit=collection.converted)
        rows.check(topology.file)
        layout = rows.newest_layout()
        shown: VisibleDocuments | OpenSearchDocuments
        if index.type == "solr":
            shown = VisibleDocuments(topology, index, collection, settling=settling_policy())
        else:  # its library is not installed everywhere
            from tailorbird.verify.index.opensearch_documents import opened_documents

            shown = opened_documents(collection, settling=settling_policy())
        opened.callback(shown.close)
        with terminal.progress(f"index {index.name}", None if request.since else shown.count()) as reported:
            stage = IndexStage(
                table=table.name,
                index=index.name,
                row_key=table.row_key,
                columns=(*(column.name for column in layout.columns), *_RESERVED) if layout else (),
                rows=rows,
                shown=shown,
                seconds=time.monotonic,
                pause=lambda _: time.sleep(_BETWEEN_LOOKS),
                reported=reported,
            )
            if request.sample > 1:
                turn = (int(time.time() / _TURN_SECONDS) if request.turn is None else request.turn) % request.sample
                compared = stage.compare(Sample(request.sample, turn))
            elif not isinstance(shown, VisibleDocuments):
                compared = stage.compare()  # nothing in OpenSearch says which documents were written later
            else:
                routine = RoutineStage(
                    stage=stage,
                    rows=rows,
                    shown=shown,
                    kept=LeavesFile(home(), topology.name, index.name),
                    identity=IndexIdentity(topology, index, rows, collection).read,
                    seconds=time.monotonic,
                )
                compared = routine.compare(changed=bool(request.since))
        if not (request.repair and compared.differing):
            return StageResult(verdict=compared.verdict)
        return repaired(request, table, index, stage, compared, terminal)
