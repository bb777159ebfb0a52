"""The graph: models, layers, and the importers that read them from files."""
