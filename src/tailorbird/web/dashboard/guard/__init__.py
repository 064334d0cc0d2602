"""Protection of the pages: headers, origins, login, and the server itself."""
