"""Short programs; each shows one feature of workers, tensors or models."""
