"""The hooks run in the order that the frame's list promises, at the times that the hooks' list promises."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, ClassVar

import pytest

from gameglue import App, MonoBehaviour, Phase, WaitForEndOfFrame, WaitForFixedUpdate
from gameglue.errors import FrameError, HookError
from gameglue.host.frame import FRAME
from gameglue.scripting.hooks import HOOKS

# Written by hand from the design, so that a reordered list fails here.
EXPECTED_PHASES = (
    "input",
    "poll",
    "wake",
    "fixed_update",
    "update",
    "coroutines",
    "late_update",
    "draw",
    "render_image",
    "gui",
    "inference",
    "present",
    "end_of_frame",
)


class Recorder(MonoBehaviour):
    """Writes down what is called."""

    label: str = ""
    log: ClassVar[list[str]] = []

    def note(self, name: str) -> None:
        self.log.append(f"{self.label}{name}")

    def awake(self) -> None:
        self.note("awake")

    def on_enable(self) -> None:
        self.note("on_enable")

    def start(self) -> None:
        self.note("start")
        self.start_coroutine(self.frames())
        self.start_coroutine(self.ends())
        self.start_coroutine(self.fixed())

    def fixed_update(self) -> None:
        self.note("fixed_update")

    def update(self) -> None:
        self.note("update")

    def late_update(self) -> None:
        self.note("late_update")

    def on_gui(self) -> None:
        self.note("on_gui")

    def on_disable(self) -> None:
        self.note("on_disable")

    def on_destroy(self) -> None:
        self.note("on_destroy")

    def on_application_quit(self) -> None:
        self.note("on_application_quit")

    def frames(self) -> Generator[Any, Any, Any]:
        while True:
            yield None
            self.note("coroutine")

    def ends(self) -> Generator[Any, Any, Any]:
        while True:
            yield WaitForEndOfFrame()
            self.note("end of frame")

    def fixed(self) -> Generator[Any, Any, Any]:
        while True:
            yield WaitForFixedUpdate()
            self.note("after fixed_update")


@pytest.fixture
def log() -> Iterator[list[str]]:
    Recorder.log = []
    yield Recorder.log
    Recorder.log = []


def test_the_list_of_phases_is_the_documented_one() -> None:
    assert tuple(phase.name for phase in FRAME) == EXPECTED_PHASES
    assert all(len(phase.doc) > 20 for phase in FRAME)


def test_hooks_of_the_first_and_second_frame(app: App, log: list[str]) -> None:
    app.scene.create("a", Recorder)
    app.step(0.02)
    every_frame = [
        "fixed_update", "after fixed_update", "update", "coroutine", "late_update", "on_gui", "end of frame",
    ]  # fmt: skip
    assert log == ["awake", "on_enable", "start", *every_frame]
    log.clear()
    app.step(0.02)
    assert log == every_frame


def test_all_are_awake_before_any_starts(app: App, log: list[str]) -> None:
    for label in ("a ", "b "):
        app.scene.create(label).add_component(Recorder, label=label)
    app._lifecycle.wake_new()
    assert log == ["a awake", "a on_enable", "b awake", "b on_enable", "a start", "b start"]


def test_execution_order_counts_before_the_order_of_adding(app: App, log: list[str]) -> None:
    class Late(Recorder):
        execution_order = 10

    class Early(Recorder):
        execution_order = -10

    for label, kind in (("late ", Late), ("plain ", Recorder), ("early ", Early)):
        app.scene.create(label).add_component(kind, label=label)
    app.step(0.0)
    assert [e for e in log if e.endswith(" update")] == ["early update", "plain update", "late update"]
    assert [e for e in log if e.endswith("awake")] == ["early awake", "plain awake", "late awake"]
    log.clear()
    app.scene.create("x").add_component(Early, label="second early ")
    app.step(0.0)
    assert [e for e in log if e.endswith(" update")] == [
        "early update", "second early update", "plain update", "late update",
    ]  # fmt: skip


def test_the_end_comes_in_order_and_once(make_app: Callable[..., App], log: list[str]) -> None:
    app = make_app(on_error="raise")
    app.scene.create("a", Recorder)
    app.step(0.0)
    log.clear()
    app.quit()
    app.run()
    app.dispose()
    assert log == ["on_application_quit", "on_disable", "on_destroy"]


def test_enabling_and_disabling(app: App, log: list[str]) -> None:
    component = app.scene.create("a").add_component(Recorder)
    app.step(0.0)
    component.stop_all_coroutines()
    log.clear()
    component.enabled = False
    app.step(0.02)
    assert log == ["on_disable"]
    component.enabled = True
    app.step(0.02)
    assert log == ["on_disable", "on_enable", "fixed_update", "update", "late_update", "on_gui"]


def test_a_component_disabled_by_an_earlier_one_is_not_called_any_more_in_this_frame(app: App) -> None:
    class Switch(MonoBehaviour):
        def update(self) -> None:
            for victim in self.scene.find_components(Victim):
                victim.enabled = False

    class Victim(MonoBehaviour):
        calls = 0

        def update(self) -> None:
            self.calls += 1

    app.scene.create("switch", Switch)
    victim = app.scene.create("victim").add_component(Victim)
    app.step(0.0)
    assert victim.calls == 0


def test_an_inactive_object_sleeps_until_it_is_switched_on(app: App, log: list[str]) -> None:
    parent = app.scene.create("parent")
    child = app.scene.create("child", Recorder, parent=parent)
    parent.set_active(False)
    app.step(0.02)
    assert log == []
    assert child.active
    assert not child.active_in_hierarchy
    parent.set_active(True)
    app.step(0.02)
    assert log[:4] == ["awake", "on_enable", "start", "fixed_update"]
    log.clear()
    parent.set_active(False)
    app.step(0.02)
    assert log == ["on_disable"], "switching off must end the coroutines too"


def test_destroying_takes_effect_at_the_end_of_the_frame(app: App, log: list[str]) -> None:
    class Bomb(MonoBehaviour):
        def update(self) -> None:
            for victim in self.scene.find_with_tag("victim"):
                victim.destroy()

    parent = app.scene.create("parent", tag="victim")
    child = app.scene.create("child", Recorder, parent=parent)
    app.step(0.0)
    app.scene.create("bomb", Bomb)
    log.clear()
    app.step(0.0)
    assert log[-3:] == ["end of frame", "on_disable", "on_destroy"]
    assert "update" in log
    assert child.is_destroyed
    assert parent.is_destroyed
    assert [o.name for o in app.scene] == ["bomb"]


def test_destroying_with_a_delay(app: App) -> None:
    victim = app.scene.create("victim")
    victim.destroy(delay=0.1)
    app.step(0.09)
    assert not victim.is_destroyed
    app.step(0.02)
    assert victim.is_destroyed


def test_what_start_adds_wakes_in_the_same_frame(app: App, log: list[str]) -> None:
    class Spawner(MonoBehaviour):
        def start(self) -> None:
            self.scene.create("child", Recorder)

    app.scene.create("spawner", Spawner)
    app.step(0.0)
    assert log[:4] == ["awake", "on_enable", "start", "update"]


def test_endless_spawning_does_not_keep_the_frame_from_going_on(app: App) -> None:
    class Rabbit(MonoBehaviour):
        def start(self) -> None:
            self.scene.create("rabbit", Rabbit)

    app.scene.create("rabbit", Rabbit)
    app.step(0.0)
    assert 2 <= len(app.scene) <= 100


def test_a_phase_can_be_inserted(app: App) -> None:
    seen: list[str] = []
    app.frame.insert(
        Phase("physics", "Own physics.", lambda app: seen.append("physics")), after="fixed_update"
    )
    app.frame.insert(Phase("network", "Packets.", lambda app: seen.append("network")), before="input")
    app.step(0.0)
    assert seen == ["network", "physics"]
    assert app.frame.names[:2] == ("network", "input")
    assert app.frame.names[5] == "physics"
    assert "physics: Own physics." in app.frame.describe()
    app.frame.remove("physics")
    app.step(0.0)
    assert seen == ["network", "physics", "network"]
    with pytest.raises(FrameError, match="no phase 'phisics'; its phases: network, input"):
        app.frame.remove("phisics")
    with pytest.raises(FrameError, match="already"):
        app.frame.insert(Phase("input", "", lambda app: None), after="update")


def test_another_app_keeps_its_own_frame(make_app: Callable[..., App]) -> None:
    first, second = make_app(), make_app()
    first.frame.remove("gui")
    assert "gui" in second.frame.names


CS_NAMES = {
    "Awake": "awake",
    "OnEnable": "on_enable",
    "Start": "start",
    "FixedUpdate": "fixed_update",
    "Update": "update",
    "LateUpdate": "late_update",
    "OnRenderImage": "on_render_image",
    "OnGUI": "on_gui",
    "OnDisable": "on_disable",
    "OnDestroy": "on_destroy",
    "OnApplicationFocus": "on_application_focus",
    "OnApplicationPause": "on_application_pause",
    "OnApplicationQuit": "on_application_quit",
    "OnValidate": "on_validate",
    "OnSave": "on_save",
    "OnLoad": "on_load",
}


def test_every_hook_has_its_csharp_name_in_the_table() -> None:
    assert set(CS_NAMES.values()) == set(HOOKS)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        *CS_NAMES.items(),
        ("onDestroy", "on_destroy"),
        ("fixedUpdate", "fixed_update"),
        ("lateupdate", "late_update"),
        ("on_Gui", "on_gui"),
        ("onGui", "on_gui"),
        ("onenable", "on_enable"),
        ("on_update", "update"),
        ("on_start", "start"),
        ("OnBeforeSerialize", "on_save"),
        ("onApplicationQuit", "on_application_quit"),
    ],
)
def test_a_misspelt_hook_fails_when_the_class_is_made(written: str, meant: str) -> None:
    with pytest.raises(HookError, match=rf"Door\.{written} would never be called: .*'{meant}'"):
        type("Door", (MonoBehaviour,), {written: lambda self: None})


@pytest.mark.parametrize("written", ["OnCollisionEnter", "OnMouseDown", "OnTriggerExit2D", "OnBecameVisible"])
def test_a_unity_message_without_counterpart_says_what_to_do_instead(written: str) -> None:
    with pytest.raises(HookError, match=f"{written} would never be called: there is no such hook; .+"):
        type("Door", (MonoBehaviour,), {written: lambda self: None})


@pytest.mark.filterwarnings("error")
def test_methods_that_only_resemble_hooks_are_left_alone() -> None:
    class Fine(MonoBehaviour):
        START = 3

        def _start(self) -> None: ...

        def restart(self) -> None: ...

        def update_score(self, points: int) -> None: ...

        def on_mouse_ground(self, where: object) -> None: ...

    assert Fine.START == 3


def test_hooks_with_wrong_parameters_fail_when_the_class_is_made() -> None:
    with pytest.raises(HookError, match=r"expected def update\(self\); .*self.time.delta_time"):
        type("Door", (MonoBehaviour,), {"update": lambda self, dt: None})
    with pytest.raises(HookError, match=r"expected def on_render_image\(self, source, destination\)"):
        type("Door", (MonoBehaviour,), {"on_render_image": lambda self, source: None})


@pytest.mark.parametrize("name", ["on_gui", "on_disable", "on_destroy", "on_application_quit"])
def test_hooks_that_must_be_done_when_they_return_cannot_wait(name: str) -> None:
    async def hook(self: object) -> None: ...

    with pytest.raises(HookError, match="must be a plain method"):
        type("Door", (MonoBehaviour,), {name: hook})
