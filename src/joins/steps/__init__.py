"""What every step of a plan does: the specification, pure."""
