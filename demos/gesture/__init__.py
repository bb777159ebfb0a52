"""Draw gestures with the pointer; a recurrent network turns them into spells."""
