"""Log users in at an OpenID Connect issuer: settings, claims of tokens, and a client of the issuer."""
