"""Run the index stage of `tailorbird verify`: connect to HBase, Solr and ZooKeeper, compare each index, repair it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

from cdc.model.errors import Retriable, Skippable
from cdc.model.naming import peer
from cdc.stored import fields
from cdc.topology.topology import Index, Table, Topology
from indexer.index.mapping import Document
from indexer.peer.zk_registration import session
from indexer.rebuild.targets import checked
from indexer.rebuild.zk_state import Generations, StoredTargets
from indexer.solr.solr_collection import SolrCollection
from tailorbird.verify.findings import Verdict
from tailorbird.verify.index.hbase_row_documents import RowDocuments
from tailorbird.verify.index.index_repair import RepairedDocuments, repair_rows
from tailorbird.verify.index.index_stage import IndexComparison, IndexStage, Sample
from tailorbird.verify.index.solr_documents import VisibleDocuments
from tailorbird.verify.request import Request, StageResult, Terminal
from tailorbird.verify.settling import SettlingPolicy

# Seconds to wait for the index: while it makes no progress, and in total.
_STANDSTILL, _MOST = 60.0, 600.0
_BETWEEN_LOOKS = 1.0
_TURN_SECONDS = 3600


def verify_indexes(request: Request, terminal: Terminal) -> Iterator[StageResult]:
    """Compare each index with its table, and repair it if requested. Raises Retriable while a server is unavailable."""
    topology = request.topology
    for index in topology.indexes.values():
        if index.table in request.tables:
            yield _verified(request, topology.tables[index.table], index, terminal)
        elif index.table in topology.foreign_tables and request.everything:
            yield StageResult(verdict=_foreign(index))


def _foreign(index: Index) -> Verdict:
    why = f"index {index.name} is over an external table, which has neither barriers nor a Tailorbird layout"
    return Verdict(stage="index", table=index.table, cut="no cut", unknown=(why,))


def _verified(request: Request, table: Table, index: Index, terminal: Terminal) -> StageResult:
    topology, settling = request.topology, SettlingPolicy(standstill=_STANDSTILL, most=_MOST)
    with closing(VisibleDocuments(topology, index, settling=settling)) as shown:
        collection = shown.collection
        rows = RowDocuments(topology, table, index, know=collection.know_fields, fit=collection.converted)
        rows.check(topology.file)
        layout = rows.newest_layout()
        with terminal.progress(f"index {index.name}", shown.count()) as reported:
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
            turn = (int(time.time() / _TURN_SECONDS) if request.turn is None else request.turn) % request.sample
            compared = stage.compare(Sample(request.sample, turn) if request.sample > 1 else None)
        if not (request.repair and compared.differing):
            return StageResult(verdict=compared.verdict)
        return _repaired(request, table, index, stage, compared, terminal)


# Additional fields; they identify the version of the row that a document represents.
_RESERVED = (fields.FENCE, fields.KIND, fields.TS, fields.BATCH, fields.LAYOUT)


def _repaired(
    request: Request, table: Table, index: Index, stage: IndexStage, compared: IndexComparison, terminal: Terminal
) -> StageResult:
    count = len(compared.differing)
    plan = f"{count:,} documents of index {index.name}: write them from their rows, or remove them if they have no row"
    if request.dry_run:
        return StageResult(verdict=compared.verdict, repair=f"would repair {plan}")
    if not terminal.ask(f"repair {plan}?"):
        return StageResult(verdict=compared.verdict, repair="nothing was repaired")
    done = _repair_rows(request.topology, table, index, compared.differing)
    lines = [
        f"repaired {done.written + done.removed:,} of {count:,}: {done.written:,} written, {done.removed:,} removed"
    ]
    lines += [f"{key} is unchanged: {reason}" for key, reason in list(done.left.items())[:20]]
    repaired = stage.look(compared.differing).verdict
    return StageResult(verdict=compared.verdict, repair="; ".join(lines), repaired=repaired)


def _repair_rows(topology: Topology, table: Table, index: Index, ids: Sequence[str]) -> RepairedDocuments:
    """Repair documents in every collection of an index, also one that is kept for rollback or being filled."""
    with session(topology.hbase.zookeeper) as client:
        name = peer(topology.name, index.name, Generations(client).current(topology.name, index.name))
        targets = StoredTargets(client, name, collection=index.collection)
        before = checked(targets)
        done = RepairedDocuments()
        for at in before.collections:
            with closing(SolrCollection(topology.solr, at, commit_within=index.commit_within)) as collection:
                was_repaired = repair_rows(ids, _CollectionDocuments(topology, table, index, collection), collection)
                done = was_repaired if at == before.collections[0] else done
        if checked(targets).epoch != before.epoch:
            raise Retriable("the index's collections changed during the repair", "run verify again")
    return done


class _BuiltDocument(NamedTuple):
    document: Document | None
    reason: str = ""


class _CollectionDocuments:
    """Builds complete documents for one collection (implements `index_repair.DocumentBuilder`)."""

    def __init__(self, topology: Topology, table: Table, index: Index, collection: SolrCollection) -> None:
        self._rows = RowDocuments(
            topology, table, index, know=collection.ensure_fields, fit=collection.converted, whole=True
        )
        self.written = self._rows.written

    def made(self, ids: Sequence[str]) -> Mapping[str, _BuiltDocument]:
        """Return the documents that the rows with these ids should have. Ids without a row are missing."""
        found: dict[str, _BuiltDocument] = {}
        for key, change in self._rows.changes(ids):
            try:
                found[key] = _BuiltDocument(self._rows.document(change, now_ms=time.time_ns() // 1_000_000))
            except Skippable as error:
                found[key] = _BuiltDocument(None, error.message)
        return found
