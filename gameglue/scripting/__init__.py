"""Components: `MonoBehaviour`, its hooks and fields, coroutines, events and timers."""
