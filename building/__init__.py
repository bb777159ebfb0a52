"""What builds the package: kernels compiled ahead of time, and the networks that say which."""
