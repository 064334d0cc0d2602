"""The first of the comparisons: a source's tables against what the log says of them."""
