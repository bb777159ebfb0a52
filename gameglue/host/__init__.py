"""The host: the app, its frame and clock, the life cycle of components, resources."""
