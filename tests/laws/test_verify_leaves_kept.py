"""Leaves that are kept between two comparisons of an index: never used after a repair of the table on any host, and
never a reason why a comparison fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from cdc.model.errors import Fatal, Retriable
from indexer.table.hbase_changes import has_all_deletes
from tailorbird.verify.index import zk_identity
from tailorbird.verify.index.file_leaves import LeavesFile
from tailorbird.verify.index.index_leaves import IndexLeaf, IndexLeaves
from tailorbird.verify.index.zk_identity import IndexIdentity
from tailorbird.verify.table.hbase_stored_rows import delete_counted

LEAVES = IndexLeaves(leaves=(IndexLeaf(start=""),), cut=1, newest=1, identity={"layout": "1"})


class CountedTable:
    """A joined table that notes its calls. `failing` is the number of the call that fails."""

    def __init__(self, failing: Mapping[int, Exception] | None = None) -> None:
        self.calls, self._failing = list[str](), failing or {}

    def count_repair(self) -> None:
        self._called("count")

    def delete(self, timestamp: int, _: Sequence[bytes]) -> None:
        self._called(f"delete at {timestamp}")

    def _called(self, what: str) -> None:
        self.calls.append(what)
        if error := self._failing.get(len(self.calls)):
            raise error


ROWS = {"aa": 5, "bb": 5, "cc": 7}


def test_a_repair_is_counted_before_and_after_its_deletes() -> None:
    """A comparison that began before the deletes, or among them, finds another count at its end."""
    table = CountedTable()
    delete_counted(ROWS, table.count_repair, table.delete)
    assert table.calls == ["count", "delete at 5", "delete at 7", "count"]
    table = CountedTable()
    delete_counted({}, table.count_repair, table.delete)
    assert table.calls == []


def test_nothing_is_deleted_uncounted() -> None:
    """A repair that cannot be counted deletes nothing. After a delete that failed, its error is the one reported."""
    table = CountedTable({1: Retriable("no answer", "wait")})
    with pytest.raises(Retriable):
        delete_counted(ROWS, table.count_repair, table.delete)
    assert table.calls == ["count"]
    table = CountedTable({3: Fatal("refused"), 4: Retriable("no answer", "wait")})
    with capture_logs() as logs, pytest.raises(Fatal):
        delete_counted(ROWS, table.count_repair, table.delete)
    assert table.calls == ["count", "delete at 5", "delete at 7", "count"]
    assert [one["event"] for one in logs] == ["repair_not_counted"]


class Unreadable(LeavesFile):
    """A file whose calls fail, as without permission (root may do everything)."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, "shop", "orders")
        (home / "verify").mkdir()
        self._file.mkdir()  # neither read nor replaced nor unlinked: IsADirectoryError or PermissionError


def test_a_file_that_cannot_be_used_never_ends_a_comparison(tmp_path: Path) -> None:
    """It counts as missing. If it cannot be deleted, a warning has its path and a remedy. No half file remains."""
    file = Unreadable(tmp_path)
    path = tmp_path / "verify" / "shop.orders.leaves.json"
    assert f"{path} cannot be read" in str(file.read({"layout": "1"}))
    with capture_logs() as logs:
        file.write(LEAVES)
        file.forget()
    assert [one["event"] for one in logs] == ["leaves_not_stored", "leaves_not_deleted", "leaves_not_deleted"]
    assert (logs[-1]["path"], "delete" in logs[-1]["remedy"]) == (str(path), True)
    assert list((tmp_path / "verify").iterdir()) == [path]


def test_a_full_disk_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new file is removed, and so are the leaves of the comparison before."""

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    file = LeavesFile(tmp_path, "shop", "orders")
    file.write(LEAVES)
    with monkeypatch.context() as patched, capture_logs() as logs:
        patched.setattr("tailorbird.verify.index.file_leaves.json.dump", full)
        file.write(LEAVES)
    assert [one["event"] for one in logs] == ["leaves_not_stored"]
    assert list((tmp_path / "verify").iterdir()) == []


class FixedIdentity:
    """A table and a collection whose identity tests set."""

    def __init__(self) -> None:
        self.repairs, self.fields = "0", {"name": "string"}

    def identity(self) -> Mapping[str, str]:
        return {"repair of the table": self.repairs}

    def field_types(self) -> Mapping[str, str]:
        return self.fields


def test_the_identity_has_the_fields_and_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another type of a field, or a version with other mapping code, makes other documents of the same rows."""

    class NoSession:
        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...

    targets = SimpleNamespace(read=lambda: SimpleNamespace(epoch=1, collections=("orders",)))
    monkeypatch.setattr(zk_identity, "session", lambda _: NoSession())
    monkeypatch.setattr(zk_identity, "Generations", lambda _: SimpleNamespace(current=lambda *_: 1))
    monkeypatch.setattr(zk_identity, "StoredTargets", lambda *_, **__: targets)
    topology: Any = SimpleNamespace(
        name="shop", hbase=SimpleNamespace(zookeeper="z"), solr=SimpleNamespace(url="http://solr")
    )
    ends = FixedIdentity()
    one = IndexIdentity(topology, SimpleNamespace(name="orders", collection="orders"), ends, ends)  # type: ignore[arg-type]  # only names are read

    def changed(before: Mapping[str, str]) -> tuple[set[str], Mapping[str, str]]:
        now = one.read()
        assert now is not None
        return {name for name in now if now[name] != before.get(name)}, now

    _, before = changed({})
    assert changed(before)[0] == set()
    ends.fields = {"name": "text"}
    what, before = changed(before)
    assert what == {"field type"}
    ends.repairs = "1"
    what, before = changed(before)
    assert what == {"repair of the table"}
    monkeypatch.setattr(zk_identity, "mapping_code", lambda: "edited")
    assert changed(before)[0] == {"version of the mapping"}


@pytest.mark.parametrize(
    ("before", "now", "complete"),
    [
        (["a", "b"], ["a", "b"], True),
        (["a", "b"], ["a", "b", "c"], True),  # memory was written to a file
        (["a", "b", "c"], ["d", "c"], True),  # a minor compaction of a and b
        (["a", "b"], ["c"], False),  # a major compaction
        (["a", "b"], ["d"], False),  # a major compaction, then a minor one of its file and a later one
        ([], [], True),  # everything is in memory; each compaction leaves a file, also an empty one
        ([], ["a"], False),  # a may be the file of a major compaction, or merged from one
        (["a"], [], False),
        (None, ["a"], False),
        (["a"], None, False),
        (None, None, False),
    ],
)
def test_deletes_are_complete_while_a_store_file_remains(
    before: list[str] | None, now: list[str] | None, complete: bool
) -> None:
    """A compaction drops delete markers only if it replaces all files of a region."""
    assert has_all_deletes(before, now) is complete
