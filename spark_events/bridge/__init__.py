"""Records of Spark: their types, and the pipes and sessions that deliver them."""
