"""Plans of a model: made, recorded, filled in for sizes, shared and kept."""
