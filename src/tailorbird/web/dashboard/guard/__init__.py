"""What stands between a page and whoever reaches it: headers, origins, the server itself."""
