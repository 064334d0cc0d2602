"""Reports of a capture: metrics, log lines and health."""
