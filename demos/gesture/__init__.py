"""Draw gestures with the pointer; a recurrent network classifies them as spells."""
