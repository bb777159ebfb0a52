"""Hot reload: a field follows a file while the game runs."""

import json
import tempfile
from pathlib import Path

from gameglue import App, MonoBehaviour


class Level(MonoBehaviour):
    """Takes its gravity from a file."""

    gravity: float = 0.0

    def start(self) -> None:
        """The file is looked at twice a second."""
        self.read(self.resources.find("level.json"))
        self.app.hot_reload.file("level.json", self.read)

    def read(self, path: Path) -> None:
        """Called between two frames."""
        self.gravity = json.loads(path.read_text())["gravity"]
        print("gravity", self.gravity)


def main() -> None:
    """Run, write the file as an editor would, and run on until the change has arrived."""
    with tempfile.TemporaryDirectory() as folder:
        (file := Path(folder, "level.json")).write_text('{"gravity": 9.8}')
        with App("level", folder=folder, headless=True, real_time=True) as app:
            level = app.scene.create("level").add_component(Level)
            app.step()
            file.write_text('{"gravity": 1.62}')
            while level.gravity != 1.62 and app.time.time < 10:
                app.step()


if __name__ == "__main__":
    main()
