"""Particles: a fire that burns on, and a burst that destroys its object when it is over."""

from gameglue import App, ParticleSystem


def main() -> tuple[int, int]:
    """Two seconds; returns the fire's living particles and the number of objects that remain."""
    with App("particles", size=(480, 320), headless=True, seed=1) as app:
        fire = app.scene.create("fire", position=(-2, -2)).add_component(
            ParticleSystem,
            rate=120,
            lifetime=1.5,
            speed=(1.0, 3.0),
            spread=30,
            sizes=(0.9, 0.1),
            colors=("#ffb04a60", "#ff6a2000"),
            additive=True,
        )
        app.scene.create("burst", position=(3, 0)).add_component(
            ParticleSystem, rate=0, bursts=((0.2, 200),), lifetime=(0.3, 0.9), destroy_when_done=True
        )
        app.run(frames=120)
        return len(fire.particles), len(app.scene.objects)


if __name__ == "__main__":
    living, objects = main()
    print(f"{living} particles, {objects} object")
