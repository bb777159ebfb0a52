"""Code generation for CPU kernels: source, arguments, tiles and partition into tasks."""
