"""Run the local servers and the demo; for developers and tests."""
