"""Play Othello against a network with tree search, in batches spread over the frames."""
