"""Native job threads, their queue, and the jobs that they run."""
