"""The demo's shop, its traffic, and how soon a reader sees it."""
