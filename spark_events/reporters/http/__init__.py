"""Code that the HTTP reporters share: proxies, and hiding of secrets."""
