"""The certificates, the API client and the web page of a fleet of capture agents."""
