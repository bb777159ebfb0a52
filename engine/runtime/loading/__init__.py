"""Background loading: reads models, creates workers, prepares plans and kernels without delaying frames."""
