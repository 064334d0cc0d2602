"""What a capture tells of itself: metrics, log lines, whether it moves."""
