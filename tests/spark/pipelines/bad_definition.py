"""Pipeline whose definitions raise an exception."""

raise ValueError("the definitions are wrong")
