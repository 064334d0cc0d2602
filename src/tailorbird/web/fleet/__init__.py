"""Certificates and web page of a capture fleet."""
