"""Parse DDL of MySQL and MariaDB and compute how each statement changes the columns of tables. Nothing is executed."""
