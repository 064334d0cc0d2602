"""Images of rows → values: decoders generated per table."""
