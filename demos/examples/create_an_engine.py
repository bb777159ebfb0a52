"""Create a worker for a model, in a component: made when it starts, freed when it is destroyed."""

from gameglue import App, BackendType, ModelAsset, ModelLoader, MonoBehaviour, Worker


class CreateWorker(MonoBehaviour):
    """Has a worker for as long as it lives."""

    model_asset: ModelAsset
    backend: BackendType = BackendType.CPU  # or GPU_COMPUTE, GPU_PIXEL

    def start(self) -> None:
        """Bind the model to a backend."""
        model = ModelLoader.load(self.model_asset)
        self.worker = Worker(model, self.backend)
        report = self.worker.plan_report()
        print(f"{len(model.layers)} layers on {report.device}, {report.kernels} kernels")

    def on_destroy(self) -> None:
        """Free its memory on the backend."""
        self.worker.dispose()


def main() -> CreateWorker:
    """Run a scene with the component for three frames."""
    with App("create a worker", headless=True) as app:
        made = app.scene.create("reader").add_component(CreateWorker, model_asset="digits/digits.onnx")
        app.run(frames=3)
    return made


if __name__ == "__main__":
    main()
