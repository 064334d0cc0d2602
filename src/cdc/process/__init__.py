"""Services that every Tailorbird process uses: its topology, its folder, its log lines, `/metrics` and `/health` (ADR
27)."""
