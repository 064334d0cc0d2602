"""Query Solr for a dashboard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pysolr

from cdc.model.errors import Fatal, Retriable, TailorbirdError
from cdc.topology.topology import Solr
from indexer.solr.solr_http import reading_session
from tailorbird.web.dashboard.view import IndexField

SECONDS_TO_ANSWER = 10.0


class SolrView:
    """Reads one Solr core for a dashboard. Calls block, and several threads may make them at a time.

    Raises Retriable while Solr or the core is unavailable."""

    def __init__(self, solr: Solr, collection: str) -> None:
        self._collection, self._url = collection, solr.url
        session = reading_session(solr)
        self._client = pysolr.Solr(f"{solr.url}/{collection}", timeout=SECONDS_TO_ANSWER, session=session)

    def fields(self) -> dict[str, IndexField]:
        """Return the fields of the core by name, in the order of their declaration."""
        answer = self._ask("schema/fields", {"q": "", "showDefaults": "true", "includeDynamic": "true"})
        return {
            field["name"]: IndexField(
                name=field["name"],
                type=field["type"],
                counted=bool(field.get("docValues")),
                many=bool(field.get("multiValued")),
            )
            for field in answer["fields"]
        }

    def select(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return Solr's response to the parameters of a query, as JSON."""
        return self._ask("select", params)

    def _ask(self, handler: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        rest = {name: value for name, value in params.items() if name != "q"}
        try:
            found: Mapping[str, Any] = self._client.search(params["q"], search_handler=handler, **rest).raw_response
        except pysolr.SolrError as error:
            raise self._explained(str(error)) from error
        except ValueError as error:
            raise Retriable(
                f"Solr at {self._url} did not answer with JSON", "see `tailorbird stack logs solr`"
            ) from error
        return found

    def _explained(self, message: str) -> TailorbirdError:
        if "HTTP 404" in message:
            return Retriable(
                f"Solr at {self._url} has no collection {self._collection} yet", "create it: tailorbird apply TOPOLOGY"
            )
        if "HTTP 400" in message:
            return Fatal(f"Solr refused the dashboard's query: {message}", "see `tailorbird stack logs solr`")
        return Retriable(f"Solr at {self._url} does not answer", "start it: tailorbird stack up")
