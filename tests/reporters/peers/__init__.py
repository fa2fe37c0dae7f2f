"""Real destinations for reporters: started by the tests, on loopback, and ended by them."""
