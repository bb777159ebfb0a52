"""Sound: clips from files or arrays, sources that play them, and the device, which may be missing."""

from gameglue.audio.clip import AudioClip
from gameglue.audio.device import Audio, Voice
from gameglue.audio.source import AudioListener, AudioSource

__all__ = ["Audio", "AudioClip", "AudioListener", "AudioSource", "Voice"]
