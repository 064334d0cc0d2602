"""Unit files of systemd, for hosts without containers."""
