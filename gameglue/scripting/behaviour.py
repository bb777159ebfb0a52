"""`MonoBehaviour`: the base class of components."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from engine.base.spelling import answers_spelling
from gameglue.scripting.coroutines import Coroutine, Routine
from gameglue.scripting.fields import Unset, mark_unset_fields
from gameglue.scripting.hooks import check_constructor, check_hooks

if TYPE_CHECKING:
    from gameglue.host.app import App
    from gameglue.host.clock import Time
    from gameglue.host.resources import Resources
    from gameglue.input import InputState
    from gameglue.scene.game_object import GameObject
    from gameglue.scene.scene import Scene
    from gameglue.scene.transform import Transform

T = TypeVar("T", bound="MonoBehaviour")

_NOT_ATTACHED = (
    "{kind} is not attached yet: make it with game_object.add_component({kind}), and use its surroundings "
    "from awake() or start() on, not in __init__"
)


@answers_spelling
class MonoBehaviour:
    """A component of a `GameObject`: define the hooks you need, and the host calls them.

    The hooks are `awake on_enable start fixed_update update late_update on_render_image on_gui on_disable
    on_destroy` and a few for special times; `gameglue.scripting.hooks.HOOKS` says when each is called. Public
    annotated attributes are serialized fields, given as `game_object.add_component(Door, speed=3.0)`. Objects
    are made by the host: set things up in `awake` or `start` rather than in `__init__`.

    A component that raises is logged with its traceback and disabled; the game continues.
    """

    execution_order: ClassVar[int] = 0
    """Lower numbers run earlier within a hook; equal ones in the order in which they were added."""

    required_components: ClassVar[tuple[type[MonoBehaviour], ...]] = ()
    """Classes of which one component each is added, where the object has none; see `require_component`."""

    _declares_no_fields: ClassVar[bool] = True

    _parts: ClassVar[tuple[str, ...]] = ("transform", "time", "game_object", "input", "scene", "app")

    _app: App = cast("App", Unset(_NOT_ATTACHED))
    _game_object: GameObject = cast("GameObject", Unset(_NOT_ATTACHED))
    _enabled: bool = True
    _is_awake: bool = False
    _is_started: bool = False
    _is_live: bool = False
    _is_queued: bool = False
    _is_destroyed: bool = False
    _origin: MonoBehaviour | None = None
    # By field: the names that resources were given by, and what was loaded. Replaced, never changed.
    _file_names: Mapping[str, tuple[tuple[str, object], ...]] = MappingProxyType({})

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._declares_no_fields = False
        check_hooks(cls)
        check_constructor(cls)
        mark_unset_fields(cls)

    # -- surroundings ---------------------------------------------------------------------------

    @property
    def app(self) -> App:
        """The host: window, frame loop, graphics and profiler."""
        return self._app

    @property
    def time(self) -> Time:
        """The clocks of the host, in seconds."""
        return self._app.time

    @property
    def input(self) -> InputState:
        """Mouse, keyboard, gamepads, named actions and axes in this frame."""
        return self._app.input

    @property
    def resources(self) -> Resources:
        """Finds and loads the game's files by name."""
        return self._app.resources

    @property
    def game_object(self) -> GameObject:
        """The object that this component belongs to."""
        return self._game_object

    @property
    def transform(self) -> Transform:
        """The object's transform."""
        return self._game_object.transform

    @property
    def scene(self) -> Scene:
        """The scene that the object is in."""
        return self._game_object.scene

    @property
    def name(self) -> str:
        """The object's name."""
        return self._game_object.name

    # -- state ----------------------------------------------------------------------------------

    @property
    def enabled(self) -> bool:
        """Whether the host calls the per-frame hooks; changing it calls `on_enable` or `on_disable`."""
        return self._enabled

    @enabled.setter
    def enabled(self, enabled: bool) -> None:
        if enabled != self._enabled:
            self._enabled = enabled
            self._app._lifecycle.refresh(self)

    @property
    def is_active_and_enabled(self) -> bool:
        """True if this component is enabled and its object active."""
        return self._enabled and not self._is_destroyed and self._game_object.active_in_hierarchy

    @property
    def is_destroyed(self) -> bool:
        """True once `on_destroy` has been called."""
        return self._is_destroyed

    def destroy(self, delay: float = 0.0) -> None:
        """Remove this component at the end of the frame, or of one `delay` seconds of game time later.

        Raises:
            SceneError: Another component of its object needs it.
        """
        self._app._lifecycle.destroy(self, delay)

    # -- neighbours -----------------------------------------------------------------------------

    def get_component(self, kind: type[T]) -> T | None:
        """The object's first component of class `kind`, or `None`."""
        return self._game_object.get_component(kind)

    def get_components(self, kind: type[T]) -> list[T]:
        """All components of class `kind` on this object."""
        return self._game_object.get_components(kind)

    def get_component_in_children(self, kind: type[T]) -> T | None:
        """The first component of class `kind` on this object or below it, or `None`."""
        return self._game_object.get_component_in_children(kind)

    def get_components_in_children(self, kind: type[T]) -> list[T]:
        """All components of class `kind` on this object and below it."""
        return self._game_object.get_components_in_children(kind)

    def get_component_in_parent(self, kind: type[T]) -> T | None:
        """The first component of class `kind` on this object or above it, or `None`."""
        return self._game_object.get_component_in_parent(kind)

    # -- timers ---------------------------------------------------------------------------------

    def invoke(self, call: Callable[[], object], delay: float) -> None:
        """Call a function after `delay` seconds of game time, in the phase of the coroutines.

        Timers continue while the component is disabled, and end with it or with an exception. A generator or
        `async def` is started as a coroutine. `functools.partial` or a lambda gives arguments.
        """
        self._app._lifecycle.timers.start(self, call, delay)

    def invoke_repeating(self, call: Callable[[], object], delay: float, period: float) -> None:
        """Call a function repeatedly, at most once per frame; calls missed in a long frame are dropped.

        Args:
            call: The function.
            delay: Seconds of game time until the first call.
            period: Seconds of game time from call to call.
        """
        self._app._lifecycle.timers.start(self, call, delay, period)

    def cancel_invoke(self, call: Callable[[], object] | None = None) -> None:
        """Cancel the timers that will call `call`, or all timers of this component."""
        self._app._lifecycle.timers.cancel(self, call)

    def is_invoking(self, call: Callable[[], object] | None = None) -> bool:
        """Whether a timer of this component will call `call`; without `call`, whether it has any timer."""
        return self._app._lifecycle.timers.is_waiting(self, call)

    # -- coroutines -----------------------------------------------------------------------------

    def start_coroutine(self, routine: Routine) -> Coroutine:
        """Run a generator or coroutine over the coming frames; up to its first wait it runs at once."""
        return self._app._coroutines.start(routine, self)

    def stop_coroutine(self, coroutine: Coroutine) -> None:
        """End `coroutine` now; its `finally` blocks run."""
        coroutine.stop()

    def stop_all_coroutines(self) -> None:
        """End every coroutine that this component started."""
        self._app._coroutines.stop_all(self)

    def __repr__(self) -> str:
        owner = self.__dict__.get("_game_object")
        return (
            f"<{type(self).__name__} of {owner.name!r}>" if owner is not None else f"<{type(self).__name__}>"
        )
