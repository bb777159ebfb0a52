"""What the demo `rival` runs, and the script that trains it."""
