"""Read all documents of a collection, to compare them with the table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pysolr
import requests

from cdc.model.errors import Retriable
from cdc.stored import fields
from cdc.topology.topology import Solr
from indexer.solr.solr_http import reading_session

_PAGE = 2000


def all_documents(url: str, collection: str, *, session: requests.Session | None = None) -> Iterator[dict[str, Any]]:
    """Yield the document of every visible row, without barriers and tombstones, in the order of their ids.

    `url` ends in `/solr`. `session` (see `reading_session`) is closed at the end. Pages by `cursorMark`, so memory
    is bounded. Raises Retriable if Solr does not answer."""
    session = session or reading_session(Solr(url=url))
    solr = pysolr.Solr(f"{url}/{collection}", timeout=60, session=session)
    row_kind = f"{fields.KIND}:{fields.ROW}"
    try:
        yield from solr.search("*:*", fq=row_kind, sort=f"{fields.UNIQUE_KEY} asc", rows=_PAGE, cursorMark="*")
    except (pysolr.SolrError, requests.RequestException) as error:
        raise Retriable(f"Solr at {url}/{collection}: {str(error)[:200]}", "`tailorbird stack status`") from error
    finally:
        session.close()
