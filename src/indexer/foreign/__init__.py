"""Index external tables: HBase tables that another system writes, with a layout that the topology describes."""
