"""Short programs, each of which shows one thing that a worker, a tensor or a model can do."""
