"""Search the versions of some rows in Solr."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pysolr
import requests

from cdc.model.errors import Retriable
from tailorbird.devtools.demo.run_freshness import LookUp


def solr_versions(collection_url: str, *, key: str, version: str, session: requests.Session | None = None) -> LookUp:
    """Return a function that searches some keys, and returns the visible version of each.

    It raises Retriable while Solr is unavailable."""
    solr = pysolr.Solr(collection_url, timeout=10, session=session)

    def look(keys: Sequence[int]) -> Mapping[int, int]:
        try:
            found = solr.search(
                # tombstones and barriers do not have the column; a filter query would fill the cache for nothing
                f"{{!terms f={key}}}" + ",".join(map(str, keys)),
                fl=f"{key},{version}",
                rows=len(keys),
            )
        except pysolr.SolrError as error:
            raise Retriable(f"Solr does not answer: {str(error)[:200]}") from error
        return {int(doc[key]): int(doc[version]) for doc in found}

    return look
