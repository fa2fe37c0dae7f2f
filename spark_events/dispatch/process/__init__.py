"""A reporter in a process of its own: what it does to its process, it does to nobody else."""
