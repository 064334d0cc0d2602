"""What every process of ours shares: its topology, its folder, its log lines, `/metrics` and `/health` (ADR 27)."""
