"""Where plans run: each backend prints kernels, owns memory, replays a command list and reads back."""
