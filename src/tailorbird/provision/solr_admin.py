"""Create, remove and swap the cores of a Solr without ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import requests

from cdc.model.errors import Fatal, Retriable, UsageError
from cdc.topology.topology import Solr
from indexer.solr.solr_http import reading_session

_TIMEOUT = 60.0


class SolrAdmin:
    """The core admin interface of one Solr. `url` ends in `/solr`. Raises Retriable while Solr is unavailable.

    `session` (of `indexer.solr.solr_http.reading_session`) has the credentials, if Solr needs them. `install` writes
    a core's configuration, given the folder of Solr's cores and the core's name."""

    def __init__(
        self, url: str, *, install: Callable[[str, str], None], session: requests.Session | None = None
    ) -> None:
        self._url = url
        self._install = install
        self._session = session or reading_session(Solr(url=url))

    def exists(self, collection: str) -> bool:
        """Return whether a core of this name is loaded."""
        return bool(self._call(action="STATUS", core=collection, indexInfo="false")["status"].get(collection))

    def create(self, collection: str, *, shards: int = 1) -> None:
        """Create an empty core. Raises UsageError for more than one shard, which only SolrCloud has."""
        if shards > 1:
            reason = f"Solr at {self._url} is not a SolrCloud, so collection {collection} cannot have {shards} shards"
            raise UsageError(reason, "remove `shards` of the index, or set solr.url to a SolrCloud")
        self._install(self._get("/admin/info/system")["core_root"], collection)
        self._call(action="CREATE", name=collection, instanceDir=collection)

    def remove(self, collection: str) -> None:
        """Unload a core and delete its files."""
        self._call(action="UNLOAD", core=collection, deleteInstanceDir="true")

    def identity(self, collection: str) -> str:
        """Return the folder of a core, which remains the same after a swap."""
        return str(self._call(action="STATUS", core=collection, indexInfo="false")["status"][collection]["instanceDir"])

    def standby_name(self, live: str, other: str) -> str:
        """Return the name that the core `live` will have after a swap with `other`."""
        return other

    def swap(self, live: str, other: str) -> None:
        """Swap the names of two cores atomically."""
        self._call(action="SWAP", core=live, other=other)

    def _call(self, **parameters: str) -> dict[str, Any]:
        return self._get("/admin/cores", **parameters)

    def _get(self, path: str, **parameters: str) -> dict[str, Any]:
        return solr_answer(self._session, self._url, path, parameters)


def solr_answer(
    session: requests.Session, url: str, path: str, parameters: Mapping[str, str], *, upload: bytes | None = None
) -> dict[str, Any]:
    """Call an admin interface and return the JSON of the response. `upload`, if given, is posted.

    Raises Retriable while Solr is unavailable, Fatal if it refuses the call."""
    try:
        response = session.request(
            "GET" if upload is None else "POST",
            url + path,
            params={**parameters, "wt": "json"},
            data=upload,
            headers=None if upload is None else {"Content-Type": "application/octet-stream"},
            timeout=_TIMEOUT,
        )
        answer: dict[str, Any] = response.json()
    except (requests.RequestException, ValueError) as error:
        raise Retriable(
            f"Solr at {url} does not answer: {type(error).__name__}", "is it up? `tailorbird stack status`"
        ) from error
    if response.status_code == 200:
        return answer
    message = str(answer.get("error", {}).get("msg", response.status_code))
    what = parameters.get("action", path).lower()
    raise Fatal(f"Solr refused {what}: {message}", "`tailorbird stack logs solr` says more")
