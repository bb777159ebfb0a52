"""Animate a sprite: clips name the frames of a sheet, and an event says that a clip has ended."""

from gameglue import AnimationClip, App, SpriteAnimator, SpriteRenderer, SpriteSheet, Texture


def main() -> list[str]:
    """Play a clip once, then another that loops; returns the clips that ended."""
    ended: list[str] = []
    with App("animate", size=(480, 320), headless=True) as app:
        sheet = SpriteSheet(app.resources.load("chatter/people.png", Texture), columns=11, rows=4)
        villager = app.scene.create("villager")
        renderer = villager.add_component(SpriteRenderer, sheet=sheet, width=4.0)
        clips = {
            "greet": AnimationClip([0, 11, 22, 33], frame_rate=8, loop=False),
            "rest": AnimationClip([0, 11], frame_rate=2),
        }
        animator = villager.add_component(SpriteAnimator, clips=clips, playing="greet")
        animator.on_finished.connect(ended.append)
        app.run(frames=45)
        print("ended:", ended, "on frame", renderer.frame, "of the sheet")
    return ended


if __name__ == "__main__":
    main()
