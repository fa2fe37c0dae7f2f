"""Code shared by the HTTP reporters: proxies, and hiding of secrets."""
