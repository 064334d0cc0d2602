"""Decode row images to values, with decoders generated per table."""
