"""MaxScale's CDC protocol: its clients are served from our topics; and what one tells, as a source."""
