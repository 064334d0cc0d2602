"""Convert batches of edits of a joined table to Solr documents."""
