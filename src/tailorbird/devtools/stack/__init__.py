"""Local servers: their definitions, the download of their files, and how to start and stop them."""
