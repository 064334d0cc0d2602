"""What a topology needs in HBase and Solr, made where it is missing."""
