"""`plan` and `apply`: change the running system to match a topology's file."""
