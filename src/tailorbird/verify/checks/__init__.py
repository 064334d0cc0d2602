"""Run the comparisons of `verify` on a schedule (`checks:` in the topology), and store their results."""
