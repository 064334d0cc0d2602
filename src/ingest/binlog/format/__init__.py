"""What is written in a binlog: codes, columns, characters, numbers, times."""
