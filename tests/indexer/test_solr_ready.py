"""What the indexer reports while Solr cannot write."""

from __future__ import annotations

from indexer.solr.solr_ready import not_ready


def test_a_closed_index_writer_needs_a_restart() -> None:
    """After a full disk, Solr answers every write like this until it is restarted: to wait is no remedy."""
    answer = b'{"error": {"msg": "this IndexWriter is closed", "trace": "org.apache.solr.common.SolrException"}}'
    error = not_ready("http://solr", 500, answer)
    assert "full disk" in error.message
    assert "restart Solr" in error.hint
    assert "HTTP 503" in not_ready("http://solr", 503, b"").message
