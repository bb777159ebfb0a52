"""Load a network in the background, prepared for its size, while a loading screen is drawn."""

from gameglue import App, BackendType, Loading, MonoBehaviour, Worker


class LoadingScreen(MonoBehaviour):
    """Shows the progress until the worker is there."""

    loading: Loading[Worker] | None = None
    worker: Worker | None = None

    async def start(self) -> None:
        """With `shapes`, the first schedule is as fast as all others."""
        self.loading = self.app.load_worker("digits/digits.onnx", BackendType.CPU, shapes={"batch": 1})
        self.worker = await self.loading
        print("ready:", len(self.worker.model.layers), "layers")
        self.app.quit()

    def on_gui(self) -> None:
        """Draw the progress."""
        if self.loading is not None and not self.loading.is_done():
            self.app.gui.text(f"{self.loading.stage}: {self.loading.progress:.0%}", 20, 20)

    def on_destroy(self) -> None:
        """The game may end before the worker is there."""
        if self.worker is not None:
            self.worker.dispose()


def main() -> None:
    """Run until it is loaded."""
    with App("loading", headless=True, real_time=True) as app:
        app.scene.create("screen", LoadingScreen)
        app.run(frames=3000)


if __name__ == "__main__":
    main()
