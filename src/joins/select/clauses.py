"""The clauses of a query and the kinds of joins that are read, and what stands in the place of the others."""

# What each clause that is not kept should become.
CLAUSES = {
    "windows": ("WINDOW", "OVER (PARTITION BY … ORDER BY …), written where it is used"),
    "order": ("ORDER BY", "no ORDER BY: rows are stored in the order of row_key"),
    "sort": ("SORT BY", "no SORT BY: rows are stored in the order of row_key"),
    "cluster": ("CLUSTER BY", "no CLUSTER BY: rows are stored in the order of row_key"),
    "distribute": ("DISTRIBUTE BY", "no DISTRIBUTE BY: rows are stored in the order of row_key"),
    "limit": ("LIMIT", "no LIMIT: the table holds every row"),
    "offset": ("OFFSET", "no OFFSET: the table holds every row"),
    "laterals": ("LATERAL VIEW", "a plain column"),
    "hint": ("a hint", "no hint"),
}
KEPT = ("expressions", "from_", "joins", "where", "group", "having", "distinct", "qualify", "with_")
KINDS = ("", "INNER", "CROSS", "LEFT", "LEFT OUTER", "RIGHT", "RIGHT OUTER", "FULL", "FULL OUTER")
NOT_YET = {
    "SEMI": "WHERE EXISTS (SELECT 1 FROM {table} WHERE {alias}.x = …)",
    "ANTI": "WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE {alias}.x = …)",
}
