"""The engine in frame loops of other libraries: one small script for each."""
