"""A mesh with a light and its shadow, seen by a 3D camera."""

from gameglue import App, Camera3D, DirectionalLight, MeshRenderer, MonoBehaviour


class Spin(MonoBehaviour):
    """Turns around the vertical axis."""

    degrees: float = 45.0  # per second

    def update(self) -> None:
        """Turn by this frame's share."""
        self.transform.rotate(self.degrees * self.time.delta_time, axis=(0, 1, 0))


def main() -> None:
    """One second."""
    with App("light", size=(480, 320), headless=True) as app:
        camera = app.scene.create("camera", Camera3D, position=(2.0, 1.8, 3.0))
        camera.transform.look_at((0, 0.4, 0), up=(0, 1, 0))
        sun = app.scene.create("sun")
        sun.add_component(DirectionalLight, shadows=True)
        sun.transform.euler_angles = (-45, 100, 0)  # degrees; the light falls along the object's forward
        app.scene.create("ground").add_component(MeshRenderer, mesh="plane(8, 8)", color="#3c4a5c")
        box = app.scene.create("box", Spin, position=(0, 0.5, 0))
        box.add_component(MeshRenderer, mesh="box(1)", color="orange", specular=0.5)
        app.run(frames=60)
        print("forward", tuple(round(value, 2) for value in box.transform.forward))


if __name__ == "__main__":
    main()
