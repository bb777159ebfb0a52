"""Plans of a model: planning, recording, size substitution, sharing and caching."""
