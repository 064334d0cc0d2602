"""Read the committed changes of each table in one order, for `tailorbird tail` and for the MaxScale server."""
