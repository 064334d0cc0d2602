"""Run local servers (Kafka, HBase, Solr, MySQL, PostgreSQL): their definition, download, start and stop."""
