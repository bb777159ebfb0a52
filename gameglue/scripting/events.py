"""`Event`: a list of listeners that `emit` calls.

    class Hero(MonoBehaviour):
        on_hit = Event[[int]]()  # each hero has its own; the brackets say what listeners are given

        def hurt(self, damage: int) -> None:
            self.on_hit.emit(damage)

    class HealthBar(MonoBehaviour):
        hero: Hero

        def start(self) -> None:
            self.hero.on_hit.connect(self.shrink)  # ends with this component

An `Event()` may also stand in a module, or be kept in any attribute.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, Self, overload

from gameglue.errors import GameError
from gameglue.host.clock import Time
from gameglue.scripting.behaviour import MonoBehaviour
from gameglue.scripting.coroutines import ResumePoint, StartedWait, YieldInstruction
from gameglue.scripting.fields import NotAField

P = ParamSpec("P")


@dataclass(eq=False, slots=True)
class _Listener:
    call: Callable[..., object]
    owner: MonoBehaviour | None
    once: bool
    is_connected: bool = True

    @property
    def is_live(self) -> bool:
        return self.is_connected and (self.owner is None or not self.owner.is_destroyed)


class Event(NotAField, Generic[P]):
    """A list of listeners that `emit` calls, in the order in which they were connected.

    In the body of a class it declares one event for each instance. A listener that is a component's method,
    or was connected with `owner=`, goes away with that component; it is called while the component is
    disabled, too. A component's listener that raises is reported as its hooks are and connected no more;
    what any other raises comes out of `emit`, after all were called.
    """

    def __init__(self) -> None:
        self._listeners: list[_Listener] = []
        self._declared = ""
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._declared, self._name = f"{owner.__name__}.{name}", name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> Event[P]: ...

    def __get__(self, instance: object | None, owner: type) -> Event[P]:
        """The instance's own event, created on first access."""
        if instance is None:
            return self
        own: Event[P] = Event()
        # There it is found before this one, so that is the last time this is asked.
        instance.__dict__[self._name] = own
        return own

    def __len__(self) -> int:
        return sum(listener.is_live for listener in self._listeners)

    def __bool__(self) -> bool:
        return True

    def connect(
        self, listener: Callable[P, object], *, owner: MonoBehaviour | None = None, once: bool = False
    ) -> Callable[P, object]:
        """Call a listener at every `emit`. Connecting it twice changes nothing.

        Args:
            listener: A function; a generator or `async def` is started as a coroutine of its component.
            owner: The component with which the connection ends.
            once: Whether to call it at the next `emit` only.

        Returns:
            The listener.

        Raises:
            GameError: The listener cannot be called.
        """
        self._check_own("connect to")
        if not callable(listener):
            raise GameError(f"connect needs something to call, got {type(listener).__name__}: {listener!r}")
        self._drop_dead()
        if not any(known.call == listener for known in self._listeners):
            bound = getattr(listener, "__self__", None)
            if owner is None and isinstance(bound, MonoBehaviour):
                owner = bound
            self._listeners.append(_Listener(listener, owner, once))
        return listener

    def disconnect(self, listener: Callable[P, object]) -> bool:
        """Disconnect `listener`; returns False if it was not connected."""
        self._check_own("disconnect from")
        found = [known for known in self._listeners if known.call == listener]
        for known in found:
            known.is_connected = False
        self._drop_dead()
        return bool(found)

    def disconnect_all(self) -> None:
        """Disconnect every listener."""
        for listener in self._listeners:
            listener.is_connected = False
        self._listeners = []

    def emit(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call all listeners. Listeners connected meanwhile are called from the next `emit` on."""
        self._check_own("emit")
        self._drop_dead()
        failures: list[Exception] = []
        for listener in tuple(self._listeners):
            if not listener.is_live:
                continue
            if listener.once:
                listener.is_connected = False
            try:
                returned = listener.call(*args, **kwargs)
                if inspect.iscoroutine(returned) or inspect.isgenerator(returned):
                    self._start(listener, returned)
            except Exception as error:  # noqa: BLE001 - one listener's fault must not keep it from the others
                if listener.owner is None:
                    failures.append(error)
                else:
                    listener.is_connected = False
                    listener.owner.app._failed(listener.owner, _name_of(listener.call), error)
        self._drop_dead()
        if failures:
            raise failures[0]

    def next(self) -> YieldInstruction:
        """Wait for the next `emit` and return its arguments as a tuple: `hit = await hero.on_hit.next()`."""
        self._check_own("wait for")
        return _NextEmit(self)

    def _start(self, listener: _Listener, routine: Any) -> None:
        if listener.owner is None:
            routine.close()
            raise GameError(
                f"{_name_of(listener.call)} waits, and belongs to no component: connect it with owner=..."
            )
        listener.owner.app._coroutines.start(routine, listener.owner)

    def _drop_dead(self) -> None:
        if not all(listener.is_live for listener in self._listeners):
            self._listeners = [listener for listener in self._listeners if listener.is_live]

    def _check_own(self, what: str) -> None:
        if self._declared:
            kind, _, name = self._declared.rpartition(".")
            raise GameError(
                f"{self._declared} declares an event that each {kind} has of its own: {what} one of theirs, "
                f"such as {kind.lower()}.{name}"
            )

    def __repr__(self) -> str:
        return f"<Event {self._declared}>" if self._declared else f"<Event, {len(self)} listener(s)>"


class _NextEmit(YieldInstruction):
    """Continue in the frame in which an event was emitted, or the next."""

    def __init__(self, event: Event[Any]) -> None:
        self._event = event

    def _begin(self, time: Time) -> StartedWait:
        """Start one wait."""
        given: list[tuple[object, ...]] = []
        self._event.connect(lambda *args: given.append(args), once=True)
        return StartedWait((ResumePoint.RESULTS, ResumePoint.FRAME), lambda: bool(given), lambda: given[0])


def _name_of(call: Callable[..., object]) -> str:
    return getattr(call, "__qualname__", repr(call))
