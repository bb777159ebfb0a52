"""What tests of pictures share."""

from __future__ import annotations

import time

from gameglue import TextureConverter


def wait_for_pictures_of_others() -> None:
    """Until nothing that an earlier test has left on its way is counted any more."""
    for _ in range(2000):
        if TextureConverter.poll() == 0:
            return
        time.sleep(0.002)
