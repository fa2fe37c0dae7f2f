"""What the reporters that speak HTTP have in common: their proxies, and what nobody else is to read."""
