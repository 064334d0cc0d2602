"""Create what a topology needs in HBase and Solr."""
