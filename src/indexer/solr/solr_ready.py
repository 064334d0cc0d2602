"""Check that Solr may be written to: that every shard of a collection has replayed its transaction log."""

from __future__ import annotations

import time
import uuid
from urllib.parse import quote, urlencode

import orjson

from cdc.model.errors import Retriable
from cdc.stored import fields
from indexer.solr.shards import ShardRange, ids_of_all_shards, shard_ranges
from indexer.solr.solr_http import UNAVAILABLE, Exchange

_CLOSED = b"this IndexWriter is closed"


class ReadyCheck:
    """Checks a collection over a new connection, before the connection's first request.

    `is_cloud` is whether Solr is a SolrCloud, None before the first check."""

    def __init__(self, url: str, collection: str) -> None:
        self._url, self._name = url, collection
        self._path = f"/{quote(collection)}"
        self.is_cloud: bool | None = None

    def wait_for_replay(self, exchange: Exchange) -> None:
        """Raise Retriable until every shard of the collection has replayed its transaction log.

        After kill -9 Solr serves a collection before the replay is done. Solr then compares a stale write with the
        index alone, accepts the write, and drops the newer version during the replay. So the fence does not work in
        that time.

        Solr's metrics would show the replay, but they may be disabled. However, Solr ignores commits during the
        replay. So this method posts a document to each shard and commits: once the documents are visible, the replay
        is done. They are tombstones, so queries do not see them and `purge_tombstones` deletes them."""
        ranges = self._shards(exchange)
        token = uuid.uuid4().hex
        keys = ids_of_all_shards(ranges, lambda number: fields.probe_id(f"{token}-{number}"))
        keys = keys or [fields.probe_id(token)]
        fence = 2 * (time.time_ns() // 1_000_000)
        probes = [{fields.UNIQUE_KEY: key, fields.FENCE: fence} for key in keys]
        status, answer = exchange("POST", f"{self._path}/update?wt=json&softCommit=true", orjson.dumps(probes))
        if status == 404:
            raise missing(self._name)
        wanted = f"{{!terms f={fields.UNIQUE_KEY}}}" + ",".join(keys)
        if status == 200:
            query = urlencode({"wt": "json", "q": wanted, "rows": 0})
            status, answer = exchange("GET", f"{self._path}/select?{query}", None)
        if status != 200:
            raise not_ready(self._url, status, answer)
        if orjson.loads(answer)["response"]["numFound"] < len(keys):
            raise Retriable(f"Solr at {self._url} replays its transaction log", "wait: this ends without action")

    def _shards(self, exchange: Exchange) -> list[ShardRange]:
        """Return the ranges of the collection's shards. Empty for a Solr that is not a SolrCloud."""
        query = urlencode({"action": "CLUSTERSTATUS", "collection": self._name, "wt": "json"})
        status, answer = exchange("GET", f"/admin/collections?{query}", None)
        if status == 200:
            self.is_cloud = True
            return shard_ranges(orjson.loads(answer)["cluster"])
        # a standalone Solr refuses all calls of this interface; SolrCloud refuses only unknown collections
        if status != 400:
            raise not_ready(self._url, status, answer)
        if b"not found" in answer:
            raise missing(self._name)
        self.is_cloud = False
        return []


def missing(collection: str) -> Retriable:
    """Return the error for a collection that Solr does not serve. It is not fatal: Solr answers 404 for every
    collection while it starts."""
    return Retriable(f"Solr does not serve collection {collection}", "create it: `tailorbird apply`")


def not_ready(url: str, status: int, answer: bytes) -> Retriable:
    """Return the error for an answer that Solr gives while it cannot write."""
    if _CLOSED in answer:
        what = "has stopped to write to this collection after an error, such as a full disk"
        return Retriable(
            f"Solr at {url} {what}", "free some space and restart Solr; HBase keeps the backlog until then"
        )
    return Retriable(f"Solr at {url} is not ready: HTTP {status}: {answer[:200]!r}", UNAVAILABLE)
