"""Code that the HTTP reporters share: settings, requests, verdicts on responses, proxies, hiding of secrets."""
