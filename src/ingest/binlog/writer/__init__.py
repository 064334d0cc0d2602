"""Write binlogs from values: the inverse of reading."""
