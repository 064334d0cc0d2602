"""Log events of any kind of source, in commit order, and the source's tables at each position of its log."""
