"""Create, remove and swap collections of OpenSearch. Each is an index with an alias, and a swap exchanges aliases."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from cdc.model.errors import Fatal
from cdc.stored import fields
from cdc.topology.topology import OpenSearch
from indexer.opensearch.mappings import new_mapping
from indexer.opensearch.opensearch_client import OpenSearchClient, reason_of

_TIMEOUT = 60.0
# Searches through the alias see rows only, neither barriers nor the tombstones of deleted rows.
_ROWS = {"filter": {"term": {fields.KIND: fields.ROW}}}
_TAKEN = "resource_already_exists_exception"


class OpenSearchAdmin:
    """Administers collections of one OpenSearch. Raises Retriable while OpenSearch is unavailable.

    `create(name)` creates the index `<name>_0`, or the next free number, with the alias `name`. `commit_within` is its
    refresh interval in seconds."""

    def __init__(self, server: OpenSearch, *, commit_within: float) -> None:
        self._client = OpenSearchClient(server, timeout=_TIMEOUT)
        self._refresh = f"{max(1, round(commit_within * 1000))}ms"

    def exists(self, collection: str) -> bool:
        """Return whether an alias of this name exists."""
        return self._client.call("GET", f"/_alias/{quote(collection)}")[0] == 200

    def create(self, collection: str, *, shards: int = 1) -> None:
        """Create an empty index and its alias, in one step. Idempotent; the shards of an existing one are kept."""
        number = 0
        while not self.exists(collection):
            name = f"{collection}_{number}"
            status, answer = self._client.call("PUT", f"/{quote(name)}", self._definition(collection, shards))
            if status != 200 and _kind(answer) != _TAKEN:
                raise Fatal(f"OpenSearch refused to create {name}: {reason_of(answer)}")
            number += 1

    def _definition(self, collection: str, shards: int) -> dict[str, Any]:
        return {
            "aliases": {collection: _ROWS},
            "mappings": new_mapping(),
            "settings": {
                "index": {
                    "number_of_shards": shards,
                    "auto_expand_replicas": "0-1",
                    "refresh_interval": self._refresh,
                    # no fence relies on deleted documents; a repair waits for this
                    "gc_deletes": "100ms",
                    "mapping.total_fields.limit": 10_000,
                }
            },
        }

    def remove(self, collection: str) -> None:
        """Delete the index of an alias, with all its aliases."""
        name = self.identity(collection)
        status, answer = self._client.call("DELETE", f"/{quote(name)}")
        if status not in (200, 404):
            raise Fatal(f"OpenSearch refused to delete {name}: {reason_of(answer)}")

    def identity(self, collection: str) -> str:
        """Return the index that an alias refers to. The name itself if it is none."""
        status, answer = self._client.call("GET", f"/_alias/{quote(collection)}")
        return str(next(iter(answer))) if status == 200 else collection

    def standby_name(self, live: str, other: str) -> str:
        """Return the name that the collection `live` will have after a swap with `other`."""
        return other

    def swap(self, live: str, other: str) -> None:
        """Exchange the indexes of two aliases atomically."""
        first, second = self.identity(live), self.identity(other)
        actions: list[dict[str, Any]] = []
        for alias, before, after in ((live, first, second), (other, second, first)):
            actions.append({"remove": {"index": before, "alias": alias}})
            actions.append({"add": {"index": after, "alias": alias, **_ROWS}})
        status, answer = self._client.call("POST", "/_aliases", {"actions": actions})
        if status != 200:
            raise Fatal(f"OpenSearch refused to swap {live} and {other}: {reason_of(answer)}")


def _kind(answer: object) -> object:
    error = answer.get("error") if isinstance(answer, dict) else None
    return error.get("type") if isinstance(error, dict) else None
