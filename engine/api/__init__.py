"""What users hold: workers, tensors, model assets, jobs, textures, command buffers and reports."""
