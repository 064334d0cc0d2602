"""Build, verify, swap, roll back and remove versions of tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from cdc.model.errors import Fatal, Retriable, UsageError
from cdc.model.naming import hbase_table, peer
from cdc.topology.topology import Index, Table, Topology
from cdc.topology.versions import TableVersions, Versions, in_versions, version_name
from tailorbird.operate.wait.goal import NotYet

if TYPE_CHECKING:
    from indexer.rebuild.moving import NameMove
    from joins.process.targets import VersionedTable
    from tailorbird.cli.change.cli_connected import ConnectedServers
    from tailorbird.deploy.plan.rollout import IndexVersions
    from tailorbird.provision.apply import Outcome
    from tailorbird.provision.hbase_admin import HBaseAdmin
    from tailorbird.provision.journal import Journal

Report = Callable[[str], None]
_LOOK_EVERY, _REPORT_AFTER = 1.0, 5.0
_TIMEOUT = 120.0


class VersionRollout:
    """Performs the steps of a rollout of table versions (`tailorbird.deploy.plan.rollout.RolloutActions`).

    `topology` is the one of the file. The caller holds its journal. `report` receives messages for the user, `made`
    the outcome of each provisioning step. Raises `NotYet` if a version is not fresh after `timeout` seconds."""

    def __init__(
        self,
        topology: Topology,
        versions: Versions,
        connected: ConnectedServers,
        journal: Journal,
        *,
        made: Callable[[Outcome], None],
        report: Report,
        timeout: float,
    ) -> None:
        self.topology, self.versions = topology, versions
        self._stores, self._client, self._hbase = connected.stores, connected.client, connected.hbase
        self._journal, self._made, self._report, self._timeout = journal, made, report, timeout
        self._moves: dict[str, list[NameMove]] = {}

    def store(self, versions: Versions) -> None:
        """Publish versions to all processes."""
        from tailorbird.deploy.plan.kafka_versions import store_versions

        if versions != self.versions:
            self._at("note versions")
            store_versions(self.topology, versions)
            self.versions = versions

    def provision(self, running: Topology) -> None:
        """Create the tables, collections and peers that the topology `running` lacks."""
        from tailorbird.provision.apply import apply
        from tailorbird.provision.plan import plan

        for outcome in apply(running, plan(running, self._stores), self._stores, self._journal.at):
            self._made(outcome)

    def until_fresh(self, name: str, number: int) -> None:
        """Wait until a version of a table has caught up with the one that serves queries. Raises NotYet after the
        timeout."""
        one = self.versions.tables[name]
        called, was = version_name(name, number), version_name(name, one.serving)
        self._at(f"wait for {called}")
        self._until_fresh(called, was)

    def verify(self, name: str, number: int) -> None:
        """Compare a version of a table with the sources. Raises Fatal if it differs."""
        called = version_name(name, number)
        self._at(f"verify {called}")
        self._verify(called)

    def move(self, name: str, number: int) -> IndexVersions:
        """Point the query names to the indexes of a version, and readers' name in PostgreSQL or Iceberg to its rows.

        Return the names of all versions' indexes."""
        one = self.versions.tables[name]
        called, was = version_name(name, number), version_name(name, one.serving)
        self._at(f"move what queries see from {was} to {called}")
        indexes = {index: dict(known) for index, known in one.indexes.items()}
        self._moves[name] = []
        for known in indexes.values():
            if one.serving in known and number in known:
                old, new = known[one.serving], known[number]
                with self._moving(old, new) as move:
                    known[one.serving] = replace(old, collection=move.run())
                known[number] = replace(new, collection=old.collection)
                self._moves[name].append(move)
        if (stored := self._stored(one.tables[number])) is not None:
            stored.show()
        return indexes

    def _stored(self, table: Table) -> VersionedTable | None:
        from joins.process.targets import versioned_table

        return versioned_table(self.topology, table)

    def moved(self, name: str) -> None:
        """Delete the records of the move, after the new names are stored."""
        for move in self._moves.pop(name):
            move.done()
        called = version_name(name, self.versions.tables[name].serving)
        self._report(f"queries see {called}; to go back: tailorbird apply {self.topology.file} --rollback")

    def end(self, name: str, numbers: Sequence[int]) -> None:
        """Stop the processes of some versions of a table, and delete their data."""
        for number in numbers:
            self._at(f"remove {version_name(name, number)}")
            self._remove(self.versions.tables[name], number, self._hbase)

    def _at(self, doing: str) -> None:
        self._journal.at(1, 1, doing)

    def _until_fresh(self, called: str, was: str) -> None:
        """Wait until version `called` has caught up, in its store and its indexes, with what `was` contained at the
        start."""
        from joins.process.targets import target_of

        running = in_versions(self.topology, self.versions)
        goal = _sequences(target_of(running, running.tables[was]).reached())
        table = target_of(running, running.tables[called])
        indexes = [index for index in running.indexes.values() if index.table == called]
        began, said = time.monotonic(), ""
        while True:
            behind = self._behind(goal, _sequences(table.reached()), called)
            for index in indexes:
                behind = behind or self._behind(goal, self._shown(index), f"index {index.name}")
            if not behind:
                return
            waited = time.monotonic() - began
            if waited > self._timeout:
                raise NotYet(
                    f"waited {waited:.0f} s: {behind}",
                    f"start `tailorbird run {self.topology.file}` and apply again: it resumes here; or raise --timeout",
                )
            if behind != said and waited > _REPORT_AFTER:
                said = behind
                self._report(f"waiting: {behind}; is `tailorbird run {self.topology.file}` running?")
            time.sleep(_LOOK_EVERY)

    def _shown(self, index: Index) -> Mapping[str, int]:
        from tailorbird.operate.status.visible_cuts import visible_sequences

        try:
            return visible_sequences(self.topology, index)
        except Retriable:
            return {}

    def _behind(self, goal: Mapping[str, int], reached: Mapping[str, int], what: str) -> str:
        if not reached:
            return f"{what} has not completed its first cut"
        late = [source for source, sequence in goal.items() if reached.get(source, -1) < sequence]
        return f"{what} lags source {', '.join(late)}" if late else ""

    def _verify(self, called: str) -> None:
        from tailorbird.verify.index.run_index_stage import verify_indexes
        from tailorbird.verify.request import SilentTerminal, parse_request
        from tailorbird.verify.table.run_table_stage import verify_tables

        asked = parse_request(in_versions(self.topology, self.versions), ["table", "index"], [called])
        for said in (*verify_tables(asked, SilentTerminal()), *verify_indexes(asked, SilentTerminal())):
            verdict = said.last
            if verdict.outcome == "different":
                what = f"{called} differs from the sources: {len(verdict.findings)} rows differ in its {verdict.stage}"
                raise Fatal(
                    what, f"`tailorbird verify {self.topology.file} --table {called}` lists them; nothing was swapped"
                )
            self._report(f"{called}: {verdict.stage} {verdict.outcome}, {verdict.rows:,} rows")

    @contextmanager
    def _moving(self, old: Index, new: Index) -> Iterator[NameMove]:
        from indexer.rebuild.moving import NameMove
        from indexer.rebuild.zk_state import RebuildState, StoredTargets
        from tailorbird.provision.engine_admin import admin_of

        former, later = self._peer(old), self._peer(new)
        with RebuildState(self._client, former).lock(), RebuildState(self._client, later).lock():
            yield NameMove(
                StoredTargets(self._client, former, collection=old.collection),
                StoredTargets(self._client, later, collection=new.collection),
                RebuildState(self._client, later, "move"),
                admin_of(self.topology, new),
                live=old.collection,
            )

    def _peer(self, index: Index) -> str:
        return peer(self.topology.name, index.name, self._stores.names.current(self.topology.name, index.name))

    def _remove(self, one: TableVersions, number: int, hbase: HBaseAdmin) -> None:
        from indexer.rebuild.zk_state import Generations, StoredTargets
        from joins.process.file_state import forget_state
        from tailorbird.provision.engine_admin import admin_of

        generations, table = Generations(self._client), one.tables[number]
        indexes = [known[number] for known in one.indexes.values() if number in known]
        self._until_ended(lambda: [f"index {i.name}" for i in indexes if generations.announced(self._peer(i))])

        def joining() -> list[str]:
            try:
                forget_state(self.topology, [table])
            except UsageError:
                return [f"join {table.name}"]
            return []

        self._until_ended(joining)
        for index in indexes:
            id_ = self._peer(index)
            collections = StoredTargets(self._client, id_, collection=index.collection).read().collections
            # the name is never used again, even if this is interrupted
            if id_ in hbase.peers():
                generations.mark_made(id_)
                hbase.remove_peer(id_)
            admin = admin_of(self.topology, index)
            for collection in collections:
                if admin.exists(collection):
                    admin.remove(collection)
        if (stored := self._stored(table)) is not None:
            stored.drop()
        called = hbase_table(self.topology.name, table.name)
        if called in hbase.tables(self.topology.name):
            hbase.drop_table(called)
        self._report(f"removed {table.name}")

    def _until_ended(self, at_work: Callable[[], Sequence[str]]) -> None:
        deadline = time.monotonic() + _TIMEOUT
        while left := at_work():
            if time.monotonic() > deadline:
                raise UsageError(f"{', '.join(left)} is still running", "stop it; `tailorbird run` stops it by itself")
            time.sleep(_LOOK_EVERY)


def _sequences(positions: Mapping[str, Mapping[str, object]]) -> dict[str, int]:
    return {source: int(str(one["sequence"])) for source, one in positions.items()}
