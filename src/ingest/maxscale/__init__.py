"""MaxScale's CDC protocol: its clients are served from our topics."""
