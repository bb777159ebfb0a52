"""The engine in the frame loops of other libraries: one script for each."""
