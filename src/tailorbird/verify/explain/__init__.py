"""Where a stored row comes from: each cell, back to the event of the log that told it."""
