"""Create, remove and swap SolrCloud collections. Each has its own configset, and an alias that a swap moves."""

from __future__ import annotations

from typing import Any

import requests

from cdc.topology.topology import Solr
from indexer.solr.solr_http import reading_session
from tailorbird.provision.file_configset import install_configset, packed_configset
from tailorbird.provision.solr_admin import SolrAdmin, solr_answer


def admin_of_solr(solr: Solr) -> SolrAdmin | SolrCloudAdmin:
    """Return the admin interface for this Solr: standalone or SolrCloud. Raises Retriable while Solr is unavailable."""
    session = reading_session(solr)
    if solr_answer(session, solr.url, "/admin/info/system", {}).get("mode") == "solrcloud":
        return SolrCloudAdmin(solr.url, session=session)
    return SolrAdmin(solr.url, install=install_configset, session=session)


class SolrCloudAdmin:
    """The collections interface of a SolrCloud. `url` ends in `/solr`. Raises Retriable while Solr is unavailable.

    `create(name)` creates the collection `<name>_0` with the alias `name`, and a swap moves the alias. `session` has
    the credentials."""

    def __init__(self, url: str, *, session: requests.Session) -> None:
        self._url, self._session = url, session

    def exists(self, collection: str) -> bool:
        """Return whether an alias or a collection of this name exists."""
        return collection in self._aliases() or collection in self._call(action="LIST")["collections"]

    def create(self, collection: str, *, shards: int = 1) -> None:
        """Create an empty collection and its alias. Idempotent; the shards of an existing collection are kept."""
        name = f"{collection}_0"
        if name not in self._call(action="LIST")["collections"]:
            if name not in self._get("/admin/configs", action="LIST")["configSets"]:
                self._upload(name)
            shape = {"numShards": str(shards), "replicationFactor": "1", "waitForFinalState": "true"}
            self._call(action="CREATE", name=name, **{"collection.configName": name}, **shape)
        self._call(action="CREATEALIAS", name=collection, collections=name)

    def remove(self, collection: str) -> None:
        """Delete a collection, its aliases and its configset."""
        name = self.identity(collection)
        for alias, target in self._aliases().items():
            if target == name:
                self._call(action="DELETEALIAS", name=alias)
        self._call(action="DELETE", name=name)
        self._get("/admin/configs", action="DELETE", name=name)

    def identity(self, collection: str) -> str:
        """Return the collection that a name or alias refers to."""
        return self._aliases().get(collection, collection)

    def standby_name(self, live: str, other: str) -> str:
        """Return the name that the collection of `live` will have after a swap: its own, since only the alias moves."""
        return self.identity(live)

    def swap(self, live: str, other: str) -> None:
        """Point the alias `live` to the collection of `other`, atomically."""
        self._call(action="CREATEALIAS", name=live, collections=self.identity(other))

    def _aliases(self) -> dict[str, str]:
        found: dict[str, str] = self._call(action="LISTALIASES")["aliases"]
        return found

    def _upload(self, name: str) -> None:
        parameters = {"action": "UPLOAD", "name": name}
        solr_answer(self._session, self._url, "/admin/configs", parameters, upload=packed_configset())

    def _call(self, **parameters: str) -> dict[str, Any]:
        return self._get("/admin/collections", **parameters)

    def _get(self, path: str, **parameters: str) -> dict[str, Any]:
        return solr_answer(self._session, self._url, path, parameters)
