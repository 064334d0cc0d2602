"""`plan` and `apply`: from what runs to what the file says."""
