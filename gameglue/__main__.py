"""`python -m gameglue` is the `gameglue` command."""

import sys

from gameglue.cli import main

if __name__ == "__main__":
    sys.exit(main())
