"""The life cycle of components: awake, enable, start, disable, destroy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from gameglue.scripting.behaviour import MonoBehaviour
from gameglue.scripting.coroutines import CoroutineRunner
from gameglue.scripting.dispatch import ErrorHandler, HookList, Wrap, resolve_hook
from gameglue.scripting.hooks import PER_FRAME_HOOKS, hooks_of
from gameglue.scripting.required import check_removable
from gameglue.scripting.timers import Timers

if TYPE_CHECKING:
    from gameglue.host.clock import Time
    from gameglue.scene.game_object import GameObject

T = TypeVar("T", bound=MonoBehaviour)

# A component whose start() adds another of itself would otherwise never let the frame begin.
_MAX_WAKE_ROUNDS = 16


class Lifecycle:
    """Calls the hooks of one app's components at their times."""

    def __init__(self, time: Time, coroutines: CoroutineRunner, on_error: ErrorHandler) -> None:
        self.hooks = {name: HookList(name, on_error) for name in PER_FRAME_HOOKS}
        self._time = time
        self._coroutines = coroutines
        self._on_error = on_error
        self.timers = Timers(time, coroutines, on_error)
        self._new: list[MonoBehaviour] = []
        self._live: dict[int, MonoBehaviour] = {}
        self._watched: list[tuple[type[MonoBehaviour], dict[int, Any]]] = []
        self._to_destroy: list[tuple[float, MonoBehaviour | GameObject]] = []
        self._was_paused = False
        self.wrap: Wrap | None = None

    def wrap_calls(self, wrap: Wrap | None) -> None:
        """Wrap every hook call in `wrap` from now on; None removes the wrapper."""
        self.wrap = wrap
        for hooks in self.hooks.values():
            hooks.wrap = wrap

    def watch(self, kind: type[T]) -> dict[int, T]:
        """A mapping that always holds the enabled and active components of class `kind`."""
        found: dict[int, T] = {key: c for key, c in self._live.items() if isinstance(c, kind)}
        self._watched.append((kind, found))
        return found

    # -- beginning ------------------------------------------------------------------------------

    def add(self, component: MonoBehaviour) -> None:
        """Add `component`; it wakes and starts in the next wake phase if it is active by then."""
        if not component._is_queued and not component._is_destroyed:
            component._is_queued = True
            self._new.append(component)

    def wake_new(self) -> None:
        """`awake`, `on_enable` and then `start` of what is new, including what these hooks add."""
        for _ in range(_MAX_WAKE_ROUNDS):
            if not self._new:
                return
            batch = sorted(self._new, key=lambda component: component.execution_order)
            self._new = []
            for component in batch:
                component._is_queued = False
                self._wake(component)
            for component in batch:
                if component._is_live and not component._is_started:
                    component._is_started = True
                    self._call(component, "start")
                    if component._is_live:
                        self._attach(component)

    def _wake(self, component: MonoBehaviour) -> None:
        if component._is_destroyed or not component.game_object.active_in_hierarchy:
            return
        if not component._is_awake:
            component._is_awake = True
            self._call(component, "awake")
        if component.is_active_and_enabled and not component._is_live:
            self._go_live(component)

    # -- enabled and disabled -------------------------------------------------------------------

    def refresh(self, component: MonoBehaviour) -> None:
        """Update after a change of `enabled` or of the object's active state."""
        wanted = component.is_active_and_enabled
        if wanted and not component._is_started:
            self.add(component)
        elif wanted and not component._is_live:
            if self._go_live(component):
                self._attach(component)
        elif not wanted and component._is_live:
            self._go_dark(component)

    def disable_failed(self, component: MonoBehaviour) -> None:
        """Remove a component that raised."""
        self._coroutines.stop_all(component)
        self.timers.cancel(component)
        component._enabled = False
        self.refresh(component)

    def _go_live(self, component: MonoBehaviour) -> bool:
        """Returns False if `on_enable` failed or disabled it again."""
        component._is_live = True
        self._live[id(component)] = component
        for kind, found in self._watched:
            if isinstance(component, kind):
                found[id(component)] = component
        self._call(component, "on_enable")
        return component._is_live

    def _go_dark(self, component: MonoBehaviour) -> None:
        component._is_live = False
        self._live.pop(id(component), None)
        for _, found in self._watched:
            found.pop(id(component), None)
        for hooks in self.hooks.values():
            hooks.discard(component)
        self._call(component, "on_disable")

    def _attach(self, component: MonoBehaviour) -> None:
        for name, hooks in self.hooks.items():
            call = resolve_hook(component, name, self._coroutines)
            if call is not None:
                hooks.add(component, call)

    # -- end ------------------------------------------------------------------------------------

    def destroy(self, target: MonoBehaviour | GameObject, delay: float = 0.0) -> None:
        """Remove `target` at the end of the first frame that is `delay` seconds of game time ahead.

        Raises `SceneError` for a component that another one of its object needs.
        """
        when = self._time.game.time + delay
        if isinstance(target, MonoBehaviour):
            check_removable(target, lambda other: not self._is_being_destroyed(other, when))
        self._to_destroy.append((when, target))

    def _is_being_destroyed(self, component: MonoBehaviour, when: float) -> bool:
        """True if the component, its object or an ancestor is due to be destroyed by `when`."""
        going = [id(target) for due, target in self._to_destroy if due <= when]
        return id(component) in going or any(
            id(owner) in going for owner in component.game_object.self_and_ancestors()
        )

    def sweep(self) -> None:
        """Remove everything that is due."""
        while True:
            now = self._time.game.time
            due = [target for when, target in self._to_destroy if when <= now]
            if not due:
                return
            self._to_destroy = [entry for entry in self._to_destroy if entry[0] > now]
            for target in due:
                self.remove(target)

    def remove(self, target: MonoBehaviour | GameObject) -> None:
        """Disable and destroy `target` now: a component, or an object with all below it."""
        if isinstance(target, MonoBehaviour):
            self._remove_component(target)
            return
        for child in target.transform.children:
            if child.game_object is not None:
                self.remove(child.game_object)
        for component in tuple(target.components):
            self._remove_component(component)
        target._leave_scene()

    def _remove_component(self, component: MonoBehaviour) -> None:
        if component._is_destroyed:
            return
        component._enabled = False
        if component._is_live:
            self._go_dark(component)
        component._is_destroyed = True
        if component._is_awake:
            self._call(component, "on_destroy")
        self._coroutines.stop_all(component)
        self.timers.cancel(component)
        component.game_object._forget(component)

    def validate(self, component: MonoBehaviour) -> None:
        """Call `on_validate` after fields were set; its errors go to the caller."""
        if "on_validate" in hooks_of(type(component)):
            component.on_validate()  # type: ignore[attr-defined]

    def follow_pause(self) -> None:
        """Call `on_application_pause` of every enabled and active component if the pause state changed."""
        if self._time.paused != self._was_paused:
            self._was_paused = self._time.paused
            self.notify_all("on_application_pause", self._was_paused)

    def notify_all(self, name: str, *arguments: object) -> None:
        """Call hook `name` of every component that is enabled and active."""
        for component in tuple(self._live.values()):
            if component._is_live:
                self._call(component, name, *arguments)

    def quit(self) -> None:
        """`on_application_quit` of every component that is enabled and active."""
        self.notify_all("on_application_quit")

    def _call(self, component: MonoBehaviour, name: str, *arguments: object) -> None:
        waits = hooks_of(type(component)).get(name)
        if waits is None:
            return
        call = getattr(component, name)
        try:
            returned = (call if self.wrap is None else self.wrap(component, name, call))(*arguments)
        except Exception as error:  # noqa: BLE001 - one component's fault must not end the loop
            self._on_error(component, name, error)
            return
        if waits:
            self._coroutines.start(returned, component, f"{type(component).__name__}.{name}")
