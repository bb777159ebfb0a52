"""Hook dispatch: one list of bound methods per hook, in execution order.

Ten thousand components with an `update` cost little more than the ten thousand calls: methods are looked up
when a component is attached, the list is ordered when it changes, and `try` surrounds the loop, not the call.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import length_hint

from gameglue.scripting.behaviour import MonoBehaviour
from gameglue.scripting.coroutines import Coroutine, CoroutineRunner
from gameglue.scripting.hooks import hooks_of

Call = Callable[..., object]
Wrap = Callable[[object, str, Call], Call]
"""Takes a component, the name of a hook and what to call; returns what to call instead."""

ErrorHandler = Callable[[MonoBehaviour, str, Exception], None]


def _nothing(*_: object) -> None:
    """Takes the place of a call that was removed while the list is being walked."""


class WaitingHook:
    """A per-frame hook written as a generator or `async def`: its runs never overlap."""

    def __init__(self, component: MonoBehaviour, name: str, method: Call, runner: CoroutineRunner) -> None:
        self._component = component
        self._name = f"{type(component).__name__}.{name}"
        self._method = method
        self._runner = runner
        self._run: Coroutine | None = None

    def __call__(self) -> None:
        """Begin a run, unless the last one is still waiting."""
        if self._run is None or self._run.is_done():
            self._run = self._runner.start(self._method(), self._component, self._name)


def resolve_hook(component: MonoBehaviour, name: str, runner: CoroutineRunner) -> Call | None:
    """What to call for hook `name` of `component`, or `None` if its class does not define it."""
    waits = hooks_of(type(component)).get(name)
    if waits is None:
        return None
    method: Call = getattr(component, name)
    return WaitingHook(component, name, method, runner) if waits else method


class HookList:
    """The calls of one per-frame hook, in execution order."""

    def __init__(self, name: str, on_error: ErrorHandler) -> None:
        self.name = name
        self._on_error = on_error
        self._calls: list[Call] = []
        self._owners: list[MonoBehaviour | None] = []
        # By id, as a game may make its component a dataclass, which has no hash.
        self._slots: dict[int, int] = {}
        self._added: dict[int, tuple[MonoBehaviour, Call]] = {}
        self._holes = 0
        self.wrap: Wrap | None = None
        """What is put around each call, while somebody wants to know how long it takes."""

    def __len__(self) -> int:
        return len(self._slots) + len(self._added)

    def add(self, component: MonoBehaviour, call: Call) -> None:
        """Call this from the next walk on."""
        self._added[id(component)] = (component, call)

    def discard(self, component: MonoBehaviour) -> None:
        """Remove a call, also from a run in progress."""
        if self._added.pop(id(component), None) is not None:
            return
        slot = self._slots.pop(id(component), None)
        if slot is not None:
            self._calls[slot] = _nothing
            self._owners[slot] = None
            self._holes += 1

    def run(self) -> None:
        """Call every hook in the list; errors are reported and the others still run."""
        self._settle()
        walk = iter(self._calls if self.wrap is None else self._wrapped(self.wrap))
        while True:
            try:
                for call in walk:
                    call()
                return
            except Exception as error:  # noqa: BLE001 - one component's fault must not end the loop
                # The iterator knows how many are left, so the happy path counts nothing.
                owner = self._owners[len(self._calls) - length_hint(walk) - 1]
                if owner is not None:
                    self._on_error(owner, self.name, error)

    def entries(self) -> list[tuple[MonoBehaviour, Call]]:
        """Components and their calls in order, for hooks that are called with arguments."""
        self._settle()
        calls = self._calls if self.wrap is None else self._wrapped(self.wrap)
        return [(o, c) for o, c in zip(self._owners, calls, strict=True) if o is not None]

    def _wrapped(self, wrap: Wrap) -> list[Call]:
        """The calls with `wrap` around each; what an earlier one removes is not called here either."""
        calls, name = self._calls, self.name

        def at(place: int) -> Call:
            return lambda *arguments: calls[place](*arguments)

        owners = enumerate(self._owners)
        return [_nothing if owner is None else wrap(owner, name, at(place)) for place, owner in owners]

    def _settle(self) -> None:
        if self._added:
            last = next((o.execution_order for o in reversed(self._owners) if o is not None), None)
            in_order = last is None or all(c.execution_order >= last for c, _ in self._added.values())
            added = sorted(self._added.values(), key=lambda entry: entry[0].execution_order)
            self._added = {}
            for component, call in added:
                self._slots[id(component)] = len(self._calls)
                self._calls.append(call)
                self._owners.append(component)
            if not in_order:
                self._rebuild()
        if self._holes > 64 and self._holes * 2 > len(self._calls):
            self._rebuild()

    def _rebuild(self) -> None:
        kept = [(o, c) for o, c in zip(self._owners, self._calls, strict=True) if o is not None]
        kept.sort(key=lambda pair: pair[0].execution_order)
        self._owners = [owner for owner, _ in kept]
        self._calls = [call for _, call in kept]
        self._slots = {id(owner): slot for slot, (owner, _) in enumerate(kept)}
        self._holes = 0
