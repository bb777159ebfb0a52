"""Games that show what gameglue does, one folder each."""
