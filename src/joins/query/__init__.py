"""SELECT → plan: read, flattened, typed, refused where it cannot be kept right."""
