"""The host's memory: where native kernels can read it, in large pages, or so that it can be taken back."""
