"""The foundation: errors, types, shapes, lifetimes, the cache folder, instrumentation, host memory."""
