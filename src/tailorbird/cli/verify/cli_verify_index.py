"""The index stage of `tailorbird verify`, wired: HBase, Solr and ZooKeeper of each index; and its repair."""

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
from tailorbird.verify.index.hbase_rows_seen import RowsSeen
from tailorbird.verify.index.index_repair import RepairedDocuments, repair_rows
from tailorbird.verify.index.index_stage import Compared, IndexStage, Sample
from tailorbird.verify.index.solr_shown import DocumentsShown
from tailorbird.verify.request import Request, Said, Terminal
from tailorbird.verify.settling import SettlingPolicy

# Seconds: for a far end that does not come nearer, and in all.
_STANDSTILL, _MOST = 60.0, 600.0
_BETWEEN_LOOKS = 1.0
_TURN_SECONDS = 3600


def verified_indexes(wanted: Request, terminal: Terminal) -> Iterator[Said]:
    """Each index of the tables, compared with its table; mended where that is wanted. Retriable, a server is away."""
    topology = wanted.topology
    for index in topology.indexes.values():
        if index.table in wanted.tables:
            yield _verified(wanted, topology.tables[index.table], index, terminal)
        elif index.table in topology.foreign_tables and wanted.everything:
            yield Said(verdict=_foreign(index))


def _foreign(index: Index) -> Verdict:
    why = f"index {index.name} is over a table that others write: it has neither barriers nor a layout of ours"
    return Verdict(stage="index", table=index.table, cut="no cut", unknown=(why,))


def _verified(wanted: Request, table: Table, index: Index, terminal: Terminal) -> Said:
    topology = wanted.topology
    with closing(DocumentsShown(topology, index, settling=SettlingPolicy(standstill=_STANDSTILL, most=_MOST))) as shown:
        collection = shown.collection
        rows = RowsSeen(topology, table, index, know=collection.know_fields, fit=collection.converted)
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
            turn = (int(time.time() / _TURN_SECONDS) if wanted.turn is None else wanted.turn) % wanted.sample
            compared = stage.compare(Sample(wanted.sample, turn) if wanted.sample > 1 else None)
        if not (wanted.repair and compared.differing):
            return Said(verdict=compared.verdict)
        return _repaired(wanted, table, index, stage, compared, terminal)


# Beside the columns, these say which version of the row a document is.
_RESERVED = (fields.FENCE, fields.KIND, fields.TS, fields.BATCH, fields.LAYOUT)


def _repaired(
    wanted: Request, table: Table, index: Index, stage: IndexStage, compared: Compared, terminal: Terminal
) -> Said:
    count = len(compared.differing)
    plan = f"{count:,} documents of index {index.name}: written from their rows, or removed where there is no row"
    if wanted.dry_run:
        return Said(verdict=compared.verdict, repair=f"would mend {plan}")
    if not terminal.ask(f"mend {plan}?"):
        return Said(verdict=compared.verdict, repair="nothing was mended")
    done = _repair_rows(wanted.topology, table, index, compared.differing)
    said = [f"mended {done.written + done.removed:,} of {count:,}: {done.written:,} written, {done.removed:,} removed"]
    said += [f"{key} stays as it is: {reason}" for key, reason in list(done.left.items())[:20]]
    return Said(verdict=compared.verdict, repair="; ".join(said), repaired=stage.look(compared.differing).verdict)


def _repair_rows(topology: Topology, table: Table, index: Index, ids: Sequence[str]) -> RepairedDocuments:
    """Mend every collection that the index has now: one that is kept to go back to, or is being filled, too."""
    with session(topology.hbase.zookeeper) as client:
        name = peer(topology.name, index.name, Generations(client).current(topology.name, index.name))
        targets = StoredTargets(client, name, collection=index.collection)
        before = checked(targets)
        done = RepairedDocuments()
        for at in before.collections:
            with closing(SolrCollection(topology.solr, at, commit_within=index.commit_within)) as collection:
                was_repaired = repair_rows(ids, _Making(topology, table, index, collection), collection)
                done = was_repaired if at == before.collections[0] else done
        if checked(targets).epoch != before.epoch:
            raise Retriable("the index's collections changed meanwhile", "run verify again")
    return done


class _Made(NamedTuple):
    document: Document | None
    reason: str = ""


class _Making:
    """Rows as the whole documents that one collection must hold (tailorbird.verify.index.index_repair.Making)."""

    def __init__(self, topology: Topology, table: Table, index: Index, collection: SolrCollection) -> None:
        self._rows = RowsSeen(
            topology, table, index, know=collection.ensure_fields, fit=collection.converted, whole=True
        )
        self.written = self._rows.written

    def made(self, ids: Sequence[str]) -> Mapping[str, _Made]:
        """See Making."""
        found: dict[str, _Made] = {}
        for key, change in self._rows.changes(ids):
            try:
                found[key] = _Made(self._rows.document(change, now_ms=time.time_ns() // 1_000_000))
            except Skippable as error:
                found[key] = _Made(None, error.message)
        return found
