"""`App`: the host. It opens a window, or none, and runs the frame that `gameglue.host.frame` writes down."""

from __future__ import annotations

import functools
import logging
import random
import threading
import time as clock
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Literal, Self

import moderngl
import numpy as np

from engine import (
    BackendType,
    Loading,
    Model,
    ModelAsset,
    Worker,
    background_planning,
    leave_a_core_to_the_game,
)
from engine.base.spelling import answers_spelling
from engine.device.native import children
from gameglue.audio import Audio
from gameglue.errors import FrameError
from gameglue.graphics.graphics import Graphics
from gameglue.graphics.gui import Gui
from gameglue.graphics.surface import open_surface
from gameglue.host.clock import Time
from gameglue.host.component_error import ComponentError
from gameglue.host.drawing_threads import prefer_this_thread
from gameglue.host.frame import Frame
from gameglue.host.garbage_collection import long_lived_kept
from gameglue.host.idle_time import Rest
from gameglue.host.interrupts import Interrupts
from gameglue.host.lifecycle import Lifecycle
from gameglue.host.loaders import register_loaders
from gameglue.host.resources import Resources
from gameglue.host.watchdog import Watchdog
from gameglue.inference import FrameSlack, InferenceQueue
from gameglue.inference.backend_choice import BackendChoice
from gameglue.input import InputRecording, InputReplay, InputSource, InputState
from gameglue.inspector import Inspector
from gameglue.profiling import FrameOverlay, FrameReport, Profiler, Recording
from gameglue.profiling.gpu_phases import GPUPhases
from gameglue.reloading import HotReload
from gameglue.scene.files.prefab import Prefab
from gameglue.scene.files.prefabs import Prefabs
from gameglue.scene.finding import Finder
from gameglue.scene.game_object import GameObject
from gameglue.scene.scene import Scene
from gameglue.scene.scenes import Scenes
from gameglue.scripting.behaviour import MonoBehaviour
from gameglue.scripting.coroutines import (
    Coroutine,
    CoroutineRunner,
    NextFrame,
    Routine,
    WaitForSeconds,
    WaitUntilDone,
    promised,
)

_log = logging.getLogger("gameglue")


_UNPACED_REST = 0.1
"""Seconds that inference may have of a frame which nobody waits for, where the processor draws."""


_FEW_FRAMES = 60
"""Runs of fewer frames begin without a full garbage collection, which may take longer than they do."""


@answers_spelling
class App(Finder):
    """A game: frame loop, scenes, window, input, graphics, inference and profiler.

        with App("pong", size=(800, 600)) as app:
            app.scene.create("ball", Ball)
            app.run()

    Several apps may live in one process, with nothing in common; one of them may have the window. An
    app is used on the thread that made it.

    Attributes:
        title: Title of the window.
        target_frame_rate: Most frames per second in real time.
        frame_budget_ms: Milliseconds that inference may take of each frame, or "slack" for what a frame
            leaves.
        deterministic: Whether every frame stands for the same time and results arrive at fixed frames.
        loading_budget_ms: Milliseconds that background loading may take of each frame.
        errors: Exceptions that components raised, oldest first.
        seed: What both random generators were seeded with.
        random: NumPy's random generator, the same numbers for the same `seed`.
        python_random: Python's random generator, likewise.
        frame: Phases of the frame in order; add your own with `insert`.
        time: Clocks: `delta_time`, `time`, `time_scale` and others, in seconds.
        profiler: Times of frames, phases and `sample` blocks.
        overlay: Frame times drawn over the game; F3 shows and hides it.
        inspector: Live view of objects and components; F2 shows and hides it.
        resources: Finds and loads files by name.
        inference: The queue of inference requests that run within the frame budget.
        headless: Whether there is no window.
        real_time: Whether frames are paced by the clock; otherwise each stands for a fixed time.
        audio: Plays sounds; `volume` is the master volume.
        graphics: Makes textures, render targets and effects; holds the picture.
        hot_reload: Reloads shaders and models when their files change.
        input: Keys, mouse, gamepads and actions of this frame.
    """

    runner: ClassVar[Callable[[App, int | None], None] | None] = None
    """What `run` calls instead of running: how a tool takes over the frames of a script's app."""

    def __init__(
        self,
        title: str = "gameglue",
        *,
        size: tuple[int, int] = (960, 640),
        headless: bool | None = None,
        context: moderngl.Context | None = None,
        folder: str | Path | None = None,
        input_source: InputSource | None = None,
        replay: InputRecording | None = None,
        seed: int | None = None,
        target_frame_rate: float = 60.0,
        real_time: bool | None = None,
        fixed_delta_time: float = 1 / 50,
        max_fixed_steps: int = 10,
        max_delta_time: float = 0.25,
        frame_budget_ms: float | Literal["slack"] = 0.75,
        deterministic: bool = False,
        latency_frames: int = 2,
        loading_budget_ms: float = 0.5,
        audio: bool | None = None,
        resizable: bool = True,
        vsync: bool = False,
        on_error: Literal["log", "raise"] = "log",
        watchdog: float = 0.0,
        time_source: Callable[[], float] = clock.perf_counter,
        sleep: Callable[[float], object] = clock.sleep,
    ) -> None:
        """Open the window or an off-screen surface; nothing runs yet.

        Args:
            title: Title of the window.
            size: Width and height in pixels.
            headless: Whether to open no window. `None` opens one if there is a display.
            context: A moderngl context to draw in off-screen. It stays the caller's.
            folder: Folder of the game's files; by default that of the running script.
            input_source: An `InputScript`, played together with the window's own input.
            replay: A recording to play instead of all other input, with its frame lengths, its seed and its
                determinism; `run()` ends with its last frame.
            seed: Makes `app.random` (NumPy) and `app.python_random` repeat. Without it, `app.seed` is random.
            target_frame_rate: Most frames per second in real time.
            real_time: Whether frames are paced by the clock. `None` means with a window; without one,
                every frame stands for 1 / target_frame_rate seconds, so a headless run repeats exactly, and
                nothing waits but for what is being loaded or planned: that has as much time of each frame as
                in real time.
            fixed_delta_time: Seconds of game time between two `fixed_update` calls.
            max_fixed_steps: Most `fixed_update` calls per frame.
            max_delta_time: Longest frame in seconds; game time falls behind longer ones.
            frame_budget_ms: Milliseconds that inference may take of each frame; "slack" takes what a frame
                leaves until the next is due, as measured, less a safety margin.
            deterministic: For replays and lockstep: every frame stands for 1 / target_frame_rate seconds,
                also in real time; inference delivers results `latency_frames` frames after the request (see
                `InferenceQueue`); and random numbers repeat without a seed.
            latency_frames: Frames from a request to its result, if `deterministic`.
            loading_budget_ms: Milliseconds that background loading may take of each frame.
            audio: Whether sounds are heard. `None` means with a window.
            resizable: Whether the player may resize the window.
            vsync: Whether to present in step with the display.
            on_error: "raise" lets a component's exception out of `step()`, for tests; "log" logs it.
            watchdog: Seconds without a finished frame after which a headless run prints every thread's stack;
                0 for never. The environment variable GAMEGLUE_WATCHDOG takes precedence.
            time_source: The clock in seconds; tests pass their own.
            sleep: How to wait for so many seconds; tests pass their own.

        Raises:
            GraphicsError: `headless` is False and no window can be opened.
        """
        if target_frame_rate <= 0.0:
            raise FrameError(f"target_frame_rate must be above 0 frames a second, got {target_frame_rate}")
        if not (isinstance(size, tuple | list) and len(size) == 2 and min(size) > 0):
            raise FrameError(f"size is a width and a height in pixels, as in size=(960, 640), got {size!r}")
        if replay is not None:
            seed, target_frame_rate = replay.seed, replay.frame_rate
            deterministic, latency_frames = replay.deterministic, replay.latency_frames
        self.title = title
        self.target_frame_rate = target_frame_rate
        self.frame_budget_ms = frame_budget_ms
        self.deterministic = deterministic
        self.loading_budget_ms = loading_budget_ms
        self.errors: list[ComponentError] = []
        if seed is None:
            seed = 0 if deterministic else random.SystemRandom().randrange(2**32)
        self.seed = seed
        self.random = np.random.default_rng(seed)
        self.python_random = random.Random(seed)
        self.frame = Frame()
        self.time = Time(
            fixed_delta_time=fixed_delta_time, max_delta_time=max_delta_time, max_fixed_steps=max_fixed_steps
        )
        self.profiler = Profiler()
        self.overlay = FrameOverlay()
        self.inspector = Inspector()
        self.resources = Resources(folder)
        self.inference = InferenceQueue(
            frame=lambda: self.time.frame_count,
            deterministic=deterministic,
            latency_frames=latency_frames,
            frame_ms=1e3 / target_frame_rate,
            on_error=self._failed,
        )
        leave_a_core_to_the_game()
        self._coroutines = CoroutineRunner(self.time, self._failed)
        self._lifecycle = Lifecycle(self.time, self._coroutines, self._failed)
        surface = open_surface(title, size, headless, context, resizable=resizable, vsync=vsync)
        self.headless = not surface.is_window
        self._waits_for_display = vsync and surface.is_window
        """Whether presenting a picture waits until the display takes one."""
        self._slack = FrameSlack(waits_behind=self._waits_for_display)
        self.real_time = surface.is_window if real_time is None else real_time
        self._watchdog = Watchdog(watchdog) if self.headless else None
        self.audio = Audio(surface.is_window if audio is None else audio)
        self.graphics = Graphics(surface, self._lifecycle, self._failed)
        is_software = self.graphics.is_software
        self._rest = Rest(
            self.inference,
            infers=lambda: is_software and not deterministic and "inference" in self.frame.names,
            pending=lambda: self.graphics.pending,
            mark=self.graphics.mark,
            time_source=time_source,
            sleep=sleep,
        )
        if self.real_time:
            # Frames that nobody waits for would keep the cores from jobs.
            prefer_this_thread()
        if is_software:
            # There a driver holds up all that is enqueued behind a picture until the picture is drawn.
            self.frame.insert(self.frame.remove("inference"), before="draw")
        self._loads: list[Loading[Worker]] = []
        self.hot_reload = HotReload(self.resources, self.graphics)
        self.input = InputState()
        self.input.sources = [surface] if input_source is None else [surface, input_source]
        self.input.filter = functools.partial(self.inspector.take, self)
        self.input.replay = None if replay is None else InputReplay(replay)
        register_loaders(self.resources, self.graphics)
        self.profiler.on_change = self._record
        self._gpu_phases: GPUPhases | None = None
        self._prefabs = Prefabs(self.resources, self.new_scene)
        self.resources.register_loader(Prefab, self._prefabs.load_path, suffixes=(".prefab",))
        self._scenes = Scenes(self)
        self._on_error = on_error
        self._time_source = time_source
        self._sleep = sleep
        self._thread = threading.get_ident()
        self._last_frame: float | None = None
        self._in_frame = False
        self.halted = False
        """Whether the game stands still: frames are drawn, but no time passes, and of the game's own code
        only what draws is called. `single_step()` runs one frame all the same. See also `time.paused`.
        """
        self._single_steps = 0
        self._stands_still = False
        """Whether this frame is one in which the game stands still."""
        self._player_time = 0.0
        """Seconds that the player has had, those with a halted game included."""
        self.was_interrupted = False
        """Whether Ctrl-C ended `run`."""
        self._quitting = False
        self._ended = False
        self._disposed = False
        # Workers that are made now belong on this app's context, also where another app's was current.
        self.graphics.make_current()

    # -- surroundings ---------------------------------------------------------------------------

    @property
    def ctx(self) -> moderngl.Context | None:
        """The moderngl context; `None` where the machine has no OpenGL."""
        return self.graphics.ctx

    @property
    def gui(self) -> Gui:
        """What to draw with in `on_gui`."""
        return self.graphics.gui

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the picture in pixels."""
        return self.graphics.size

    @property
    def is_quitting(self) -> bool:
        """True once `quit()` was called."""
        return self._quitting

    # -- scenes ---------------------------------------------------------------------------------

    @property
    def scene(self) -> Scene:
        """The active scene: the one loaded last in the place of others. At first it is empty."""
        return self._scenes.active

    @scene.setter
    def scene(self, scene: Scene) -> None:
        self._scenes.active = scene

    @property
    def scenes(self) -> tuple[Scene, ...]:
        """Every loaded scene: the active one, additive ones, and the one of objects that survive loads."""
        return self._scenes.loaded

    def new_scene(self, name: str = "scene") -> Scene:
        """An empty scene that is not loaded: fill it, then `load_scene(scene)`."""
        return Scene(self, name)

    def load_scene(self, scene: Scene | str | Path, additive: bool = False) -> Scene:
        """Put `scene` in the place of the loaded ones, whose objects are destroyed, or add it to them.

        `scene` may be the name of a file, such as "level 1.scene", as for `resources`. Within a frame the
        change happens at its end.

        Returns:
            The scene.

        Raises:
            SceneError: Something in the file is wrong; the message names it and its line, and all stays as it
                is.
        """
        loaded = self._scenes.load(scene, additive=additive)
        self._change_scenes()
        return loaded

    def load_scene_async(self, name: str | Path, additive: bool = False) -> Loading[Scene]:
        """Load a scene file in the background: `await self.app.load_scene_async("level 2.scene")`.

        Its objects are made within `loading_budget_ms` of each frame, its textures and other resources read
        on another thread. When the handle is done they are there, and the scene takes its place at the end of
        that frame. The handle has `progress`, and `result()` raises what `load_scene` does.
        """

        def loaded(scene: Scene) -> None:
            self.load_scene(scene, additive)

        return self._scenes.load_async(name, loaded)

    def unload_scene(self, scene: Scene) -> None:
        """Destroy a loaded scene and all in it, within a frame at its end; other scenes stay.

        Raises:
            SceneError: The scene is not loaded.
        """
        self._scenes.unload(scene)
        self._change_scenes()

    def dont_destroy_on_load(self, owner: GameObject) -> None:
        """Let `owner`, at the top of its hierarchy, and all below it survive when other scenes are loaded.

        It moves into a scene of its own, the last of `scenes`.

        Raises:
            SceneError: The object hangs under another.
        """
        self._scenes.keep(owner)

    def _change_scenes(self) -> None:
        if not self._in_frame:
            self._scenes.change()

    def _every_object(self) -> Iterator[GameObject]:
        return (owner for scene in self._scenes.loaded for owner in scene.objects)

    # -- running --------------------------------------------------------------------------------

    def run(self, frames: int | None = None) -> None:
        """Run frames until `quit()` is called or the window is closed, or until `frames` of them have run.

        On quitting the hooks run: `on_application_quit`, `on_disable`, `on_destroy`. The last picture and the
        report stay available until `dispose()`. Ctrl-C quits too, and leaves
        `was_interrupted`.
        """
        self._check_usable()
        if App.runner is not None:
            App.runner(self, frames)
            return
        done = 0
        is_long = frames is None or frames >= _FEW_FRAMES
        with long_lived_kept(collects=is_long), Interrupts(self.quit) as interrupts:
            try:
                while not self._quitting and not self._is_played(done, frames):
                    self.step()
                    done += 1
                    self._pace()
            except KeyboardInterrupt:
                interrupts.is_asked = True
            finally:
                self._stop_watching()
        if interrupts.is_asked:
            _log.warning("interrupted in frame %d", self.time.frame_count)
            self.was_interrupted = True
            self.quit()
        if self._quitting:
            self._end()

    @property
    def exit_code(self) -> int:
        """What a program should end with: 0, 1 where a component raised, 130 where Ctrl-C ended the game.

        app.run()
        raise SystemExit(app.exit_code)
        """
        return 130 if self.was_interrupted else 1 if self.errors else 0

    def _is_played(self, done: int, frames: int | None) -> bool:
        """Whether `run` has done all requested frames."""
        replay = self.input.replay
        return (frames is not None and done >= frames) or (replay is not None and replay.is_over)

    def step(self, dt: float | None = None) -> None:
        """Run one frame that stands for `dt` seconds; without it, for the time since the last one.

        The first frame stands for 1 / target_frame_rate seconds, and so does every frame without `real_time`
        and where the app is deterministic.
        """
        self._check_usable()
        now = self._time_source()
        self._stands_still = self.halted and self._single_steps == 0
        if self.halted and not self._stands_still:
            self._single_steps -= 1
            dt = 1.0 / self.target_frame_rate if dt is None else dt
        if self.input.replay is not None and not self._stands_still:
            recorded = self.input.replay.begin_frame()
            dt = recorded if dt is None else dt
        if dt is None:
            known = self.real_time and not self.deterministic and self._last_frame is not None
            dt = now - (self._last_frame or 0.0) if known else 1.0 / self.target_frame_rate
        self._last_frame = now
        self.graphics.make_current()
        self._player_time += dt
        if self._stands_still:
            self.time.hold()
        else:
            self.time.begin_frame(dt)
        profiler, tick = self.profiler, clock.perf_counter
        self._in_frame = True
        start = before = tick()
        profiler._begin_frame(start, self.time.frame_count)
        self._slack.begin_frame(start, 1e3 / self.target_frame_rate)
        children.hold()
        try:
            with background_planning():
                for phase in self.frame:
                    if self._stands_still and not phase.goes_on:
                        continue
                    if self._gpu_phases is not None:
                        self._gpu_phases.begin(phase.name)
                    phase.run(self)
                    after = tick()
                    profiler.add_phase(phase.name, after - before, before)
                    before = after
        finally:
            children.let_go()
            self._in_frame = False
            if self._gpu_phases is not None:
                self._gpu_phases.end_frame()
            profiler._end_frame(before - start, start)
            self._slack.end_frame(before)
            if self._watchdog is not None:
                self._watchdog.frame_ended(before)
        with background_planning():
            self._change_scenes()

    def quit(self) -> None:
        """End the game after this frame."""
        self._quitting = True

    def single_step(self) -> None:
        """Let a halted game (`app.halted`) run one more frame, of 1 / target_frame_rate seconds."""
        if self.halted:
            self._single_steps += 1

    def next_frame(self) -> NextFrame:
        """`await self.app.next_frame()` continues in the next frame, after `update`."""
        return promised(NextFrame(), "await self.app.next_frame()")

    def seconds(self, duration: float) -> WaitForSeconds:
        """`await self.app.seconds(0.5)` waits for half a second of game time."""
        return promised(WaitForSeconds(duration), f"await self.app.seconds({duration!r})")

    def until_done(self, handle: object) -> WaitUntilDone:
        """`await self.app.until_done(handle)` waits for anything that has `is_done()` or `done()`."""
        return WaitUntilDone(handle)

    def start_coroutine(self, routine: Routine) -> Coroutine:
        """Run a generator or coroutine that belongs to no component."""
        return self._coroutines.start(routine)

    def _pace(self) -> None:
        if self._last_frame is None or (self.real_time and self._quitting):
            return
        end = self._last_frame + 1.0 / self.target_frame_rate
        left = end - self._time_source()
        if not self.real_time:
            # Nobody waits for the next frame: inference continues as it would with a faster device, and what
            # is loaded or planned takes as many frames as in real time.
            self._rest.spend(_UNPACED_REST, loading=left)
        else:
            self._rest.spend(left)
            left = end - self._time_source()
            if left > 0.0:
                self._sleep(left)

    # -- recording input ------------------------------------------------------------------------

    def record_input(self, **metadata: object) -> InputRecording:
        """Record every frame's length and input from now on; `recording.save(file)` at the end.

        Begin before the first frame, and `App(replay=recording)` plays the same again if the game uses
        nothing but input, `app.time` and `app.random`; with networks, record a deterministic app.

        Args:
            metadata: What else the game has to know when it plays the recording (`recording.metadata`).
        """
        queue = self.inference
        self.input.recording = InputRecording(
            seed=self.seed,
            frame_rate=self.target_frame_rate,
            deterministic=self.deterministic,
            latency_frames=queue.latency_frames,
            size=self.size,
            metadata=metadata,
        )
        return self.input.recording

    # -- loading --------------------------------------------------------------------------------

    def load_worker(
        self,
        model: str | Path | Model | ModelAsset,
        backend: BackendType | BackendChoice = BackendType.CPU,
        **options: Any,
    ) -> Loading[Worker]:
        """Load a worker in the background: `worker = await self.app.load_worker("net.onnx")`.

        It takes `loading_budget_ms` of each frame, and frame idle time.

        Args:
            model: A file name as for `resources`, an asset, or a model.
            backend: The backend, or a choice of backend, device and precision.
            **options: Options of `Worker.load_async`.

        Returns:
            A handle to await or poll.
        """
        if isinstance(model, str | Path):
            model = self.resources.find(model)
        if isinstance(backend, BackendChoice):
            options = {"device": backend.device, "precision": backend.precision} | options
            backend = backend.backend
        self._loads = [load for load in self._loads if not load.is_over]
        self._loads.append(Worker.load_async(model, backend, **options))
        return self._loads[-1]

    # -- results --------------------------------------------------------------------------------

    def screenshot(self, path: str | Path) -> None:
        """Save the picture as PNG: the last complete one, or within a frame the one that is being drawn.

        Waits for the GPU. Where there is no OpenGL it logs a warning and writes nothing.
        """
        if self._in_frame:
            self.graphics.request_screenshot(Path(path))
        else:
            self.graphics.save_picture(Path(path))

    def report(self, **metadata: object) -> FrameReport:
        """The frame times so far. `metadata` is added to the report unchanged."""
        own: dict[str, object] = {
            "renderer": self.graphics.renderer,
            "picture": f"{self.size[0]}x{self.size[1]}",
            "window": "no" if self.headless else "yes",
            "component errors": len(self.errors),
            "fixed time dropped (s)": round(self.time.fixed.dropped, 3),
        }
        if self._rest.limit:
            own["limit"] = self._rest.limit
        return FrameReport.of(self.profiler, self.title, {**own, **metadata})

    def _record(self, recording: Recording | None) -> None:
        """The profiler begins to record, or ends."""
        wrap = None if recording is None else recording.timed
        self._lifecycle.wrap_calls(wrap)
        self.graphics.wrap = wrap
        if self._gpu_phases is not None and self.graphics.ctx is not None:
            self._gpu_phases.release()
        self._gpu_phases = None if recording is None else GPUPhases.of(self.graphics, recording.drawn)

    # -- end ------------------------------------------------------------------------------------

    def dispose(self) -> None:
        """End the game if it has not ended, free everything on the GPU and close the window."""
        if self._disposed:
            return
        self._check_thread()
        self.graphics.make_current()
        self._end()
        self.profiler.stop()
        self._stop_watching()
        self._disposed = True
        self.audio.close()
        self.inspector.dispose()
        self.graphics.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.dispose()

    def _stop_watching(self) -> None:
        if self._watchdog is not None:
            self._watchdog.stop()

    def _end(self) -> None:
        if self._ended:
            return
        self._ended = self._quitting = True
        self._lifecycle.quit()
        self._scenes.end()
        self.hot_reload.dispose()
        self.resources.stop_loading()
        for load in self._loads:
            load.stop()

    # -- errors ---------------------------------------------------------------------------------

    def _failed(self, component: object, where: str, error: Exception) -> None:
        """A component, coroutine or callback of the game raised."""
        self.errors.append(ComponentError(component, where, error))
        if isinstance(component, MonoBehaviour):
            _log.error("%r raised in %s and is disabled", component, where, exc_info=error)
            self._lifecycle.disable_failed(component)
        else:
            _log.error("%s raised", where, exc_info=error)
        if self._on_error == "raise":
            raise error

    def _check_not_over(self) -> None:
        """Raise `FrameError` once the app has ended."""
        if self._disposed or self._ended:
            raise FrameError("this app has ended; make a new App to play again")

    def _check_usable(self) -> None:
        self._check_not_over()
        if self._in_frame:
            raise FrameError("step() was called from within a frame; use a coroutine to wait for frames")
        self._check_thread()

    def _check_thread(self) -> None:
        if threading.get_ident() != self._thread:
            raise FrameError("an App is used on the thread that made it: its OpenGL context lives there")
