"""Elements of the binlog format: codes, columns, characters, numbers, times."""
