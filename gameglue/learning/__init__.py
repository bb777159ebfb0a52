"""Networks that learn while a game runs."""
