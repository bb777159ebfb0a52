"""The command that replaces the archive of networks."""

import sys
from pathlib import Path

from building.networks import write

if __name__ == "__main__":
    write([Path(name) for name in sys.argv[1:]])
