"""What the demo `swarm` runs, and the script that trains it."""
