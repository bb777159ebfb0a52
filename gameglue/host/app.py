"""`App`: the host of a game. Opens a window, or none, and runs the phases of `gameglue.host.frame`."""

from __future__ import annotations

import functools
import logging
import random
import time as clock
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import moderngl
import numpy as np

from engine import BackendType, Loading, Model, ModelAsset, Worker, reserve_game_core
from engine.base.spelling import answers_spelling
from gameglue.audio import Audio
from gameglue.errors import FrameError
from gameglue.graphics.graphics import Graphics
from gameglue.graphics.gui import Gui
from gameglue.graphics.surface import open_surface
from gameglue.host.clock import Time
from gameglue.host.component_error import ComponentError
from gameglue.host.frame import Frame
from gameglue.host.frame_loop import FrameLoop
from gameglue.host.idle_time import IdleTime
from gameglue.host.lifecycle import Lifecycle
from gameglue.host.render_threads import prioritize_frame_thread
from gameglue.host.resource_loaders import register_loaders
from gameglue.host.resources import Resources
from gameglue.host.scene_loading import SceneLoading
from gameglue.host.watchdog import Watchdog
from gameglue.inference import FrameSlack, InferenceQueue
from gameglue.inference.backend_choice import BackendChoice
from gameglue.input import InputRecording, InputReplay, InputSource, InputState
from gameglue.inspector import Inspector
from gameglue.profiling import FrameOverlay, FrameReport, Profiler, ProfileRecording
from gameglue.profiling.gpu_phases import GPUPhases
from gameglue.reloading import HotReload
from gameglue.scene.files.prefab import Prefab
from gameglue.scene.files.prefabs import Prefabs
from gameglue.scene.scenes import Scenes
from gameglue.scripting.behaviour import MonoBehaviour
from gameglue.scripting.coroutines import (
    Coroutine,
    CoroutineRunner,
    NextFrame,
    Routine,
    WaitForSeconds,
    WaitUntilDone,
    warn_if_not_awaited,
)

_log = logging.getLogger("gameglue")


@answers_spelling
class App(SceneLoading, FrameLoop):
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
        graphics: Makes textures, render targets and effects; holds the image.
        hot_reload: Reloads shaders and models when their files change.
        input: Keys, mouse, gamepads and actions of this frame.
    """

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
                nothing waits but for what is being loaded or planned: that has a frame's time after each.
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
        super().__init__(time_source, sleep)
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
        reserve_game_core()
        self._coroutines = CoroutineRunner(self.time, self._failed)
        self._lifecycle = Lifecycle(self.time, self._coroutines, self._failed)
        surface = open_surface(title, size, headless, context, resizable=resizable, vsync=vsync)
        self.headless = not surface.is_window
        self._waits_for_display = vsync and surface.is_window
        """Whether presenting an image waits until the display takes one."""
        self._slack = FrameSlack(waits_behind=self._waits_for_display)
        self.real_time = surface.is_window if real_time is None else real_time
        self._watchdog = Watchdog(watchdog) if self.headless else None
        self.audio = Audio(surface.is_window if audio is None else audio)
        self.graphics = Graphics(surface, self._lifecycle, self._failed)
        is_software = self.graphics.is_software
        self._idle_time = IdleTime(
            self.inference,
            infers=lambda: is_software and not deterministic and "inference" in self.frame.names,
            pending=lambda: self.graphics.pending,
            mark=self.graphics.mark,
            time_source=time_source,
            sleep=sleep,
        )
        if self.real_time:
            # Frames that nobody waits for would keep the cores from jobs.
            prioritize_frame_thread()
        if is_software:
            # There a driver holds up all that is enqueued behind an image until the image is drawn.
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
        # Workers that are made now belong on this app's context, also where another app's was current.
        self.graphics.make_current()

    # -- surroundings ---------------------------------------------------------------------------

    @property
    def ctx(self) -> moderngl.Context | None:
        """The moderngl context; `None` where the machine has no OpenGL."""
        return self.graphics.ctx

    @property
    def gui(self) -> Gui:
        """The canvas for `on_gui`."""
        return self.graphics.gui

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the image in pixels."""
        return self.graphics.size

    # -- coroutines -----------------------------------------------------------------------------

    def next_frame(self) -> NextFrame:
        """`await self.app.next_frame()` continues in the next frame, after `update`."""
        return warn_if_not_awaited(NextFrame(), "await self.app.next_frame()")

    def seconds(self, duration: float) -> WaitForSeconds:
        """`await self.app.seconds(0.5)` waits for half a second of game time."""
        return warn_if_not_awaited(WaitForSeconds(duration), f"await self.app.seconds({duration!r})")

    def until_done(self, handle: object) -> WaitUntilDone:
        """`await self.app.until_done(handle)` waits for anything that has `is_done()` or `done()`."""
        return WaitUntilDone(handle)

    def start_coroutine(self, routine: Routine) -> Coroutine:
        """Run a generator or coroutine that belongs to no component."""
        return self._coroutines.start(routine)

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
        """Save the image as PNG: the last complete one, or within a frame the one that is being drawn.

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
        if self._idle_time.limit:
            own["limit"] = self._idle_time.limit
        return FrameReport.of(self.profiler, self.title, {**own, **metadata})

    def _record(self, recording: ProfileRecording | None) -> None:
        """Start timing hooks and GPU phases for a recording; None stops it."""
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
        """Log an exception of game code, append it to `errors`, and disable the component that raised."""
        self.errors.append(ComponentError(component, where, error))
        if isinstance(component, MonoBehaviour):
            _log.error("%r raised in %s and is disabled", component, where, exc_info=error)
            self._lifecycle.disable_failed(component)
        else:
            _log.error("%s raised", where, exc_info=error)
        if self._on_error == "raise":
            raise error
