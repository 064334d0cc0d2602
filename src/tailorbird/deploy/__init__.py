"""Draft a topology from existing databases (`draft`), and plan and roll out changes of a topology (`plan`)."""
