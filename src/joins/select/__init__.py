"""SELECT → plan: read, flattened, bound to the schemas, refused where it can not be kept right."""
