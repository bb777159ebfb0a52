"""The public API: workers, tensors, model assets, jobs, textures, command buffers and reports."""
