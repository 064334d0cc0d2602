"""Rows and messages outside of the kernel: their bytes, the writes of a batch, and up to where it is complete."""
