"""What is made ready beside a game's frames: models read, workers made, plans and kernels prepared."""
