"""Run the repair of an index: ask the user, write or remove documents in every collection, compare again."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

from cdc.model.errors import Retriable, Skippable
from cdc.model.naming import peer
from cdc.topology.topology import Index, Table, Topology
from indexer.engine.engine import SearchCollection, open_collection
from indexer.index.mapping import Document
from indexer.peer.zk_registration import session
from indexer.rebuild.targets import checked
from indexer.rebuild.zk_state import Generations, StoredTargets
from tailorbird.verify.index.hbase_row_documents import RowDocuments
from tailorbird.verify.index.index_repair import RepairedDocuments, repair_rows
from tailorbird.verify.index.index_stage import IndexComparison, IndexStage
from tailorbird.verify.request import Request, StageResult, Terminal


def repaired(
    request: Request, table: Table, index: Index, stage: IndexStage, compared: IndexComparison, terminal: Terminal
) -> StageResult:
    """Write or remove the differing documents if the user confirms it, then compare them again. A dry run only
    describes it.

    Raises Retriable if the index's collections change during the repair."""
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
            with closing(open_collection(topology, index, at)) as collection:
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

    def __init__(self, topology: Topology, table: Table, index: Index, collection: SearchCollection) -> None:
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
