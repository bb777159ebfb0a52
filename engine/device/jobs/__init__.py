"""Native job threads: the queue that they work from, and functions of a game that they run."""
