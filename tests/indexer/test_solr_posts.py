"""Solr receives as many posts at a time as its processors can use, however many batches are indexed."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

import pytest

from cdc.model.errors import Retriable
from cdc.topology.topology import Solr
from indexer.solr.solr_collection import SolrCollection
from indexer.solr.solr_turns import PATH


class Posts:
    """Stands for Solr: counts the posts that run at the same time."""

    def __init__(self, seconds: float, processors: int | None = 2) -> None:
        self.most = self.done = self._running = 0
        self._processors = processors
        self._seconds, self._lock = seconds, threading.Lock()

    def request(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        with self._lock:
            self._running += 1
            self.most = max(self.most, self._running)
        time.sleep(self._seconds)
        with self._lock:
            self._running -= 1
            self.done += 1
        return 200, b"{}"

    def json(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, Any]]:
        assert (method, path) == ("GET", PATH)
        if self._processors is None:
            raise Retriable("HTTP 403", "")
        return 200, {"system": {"availableProcessors": self._processors}}

    def close(self) -> None: ...


def collection(posts: Posts, monkeypatch: pytest.MonkeyPatch, *, timeout: float) -> SolrCollection:
    made = SolrCollection(Solr(url="http://127.0.0.1:1/solr"), "c", commit_within=1.0, timeout=timeout)
    monkeypatch.setattr(made, "_writes", posts)
    monkeypatch.setattr(made._turns, "_ask", posts.json)
    return made


@pytest.mark.parametrize(("processors", "most"), [(1, 1), (2, 1), (3, 1), (4, 2), (64, 4), (None, 4)])
def test_posts_take_turns(processors: int | None, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Concurrent posts make Solr spend more CPU per document, so a small Solr gets one at a time (ADR 121)."""
    posts = Posts(0.05, processors)
    with contextlib.closing(collection(posts, monkeypatch, timeout=15.0)) as made:
        waits = [made.begin([{"_id": str(number), "_fence": 1}], backlog=True) for number in range(8)]
        assert [wait() for wait in waits] == [[]] * 8
    assert (posts.most, posts.done) == (most, 8)


def test_a_post_does_not_wait_for_ever_for_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """HBase waits a minute for a batch. So a post behind one that hangs fails when its own request would."""
    posts = Posts(0.4)
    with contextlib.closing(collection(posts, monkeypatch, timeout=0.05)) as made:
        first, second = (made.begin([{"_id": name, "_fence": 1}]) for name in ("a", "b"))
        found = []
        for wait in (first, second):
            try:
                found.append(str(wait()))
            except Retriable as error:
                found.append(error.message)
    assert sorted(found) == ["Solr at http://127.0.0.1:1/solr/c is busy with earlier documents", "[]"]
