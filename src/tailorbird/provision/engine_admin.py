"""Choose the administration of an index's search engine."""

from __future__ import annotations

from cdc.topology.topology import Index, Topology
from indexer.rebuild.reindex import CollectionAdmin
from tailorbird.provision.solr_cloud import admin_of_solr


def admin_of(topology: Topology, index: Index) -> CollectionAdmin:
    """Return what creates, swaps and removes the collections of an index. Raises Retriable while its engine is
    unavailable."""
    if index.type == "opensearch":
        from tailorbird.provision.opensearch_admin import OpenSearchAdmin

        return OpenSearchAdmin(topology.opensearch, commit_within=index.commit_within)
    return admin_of_solr(topology.solr)
