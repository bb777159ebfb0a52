"""Layout of the job system's native memory, and the requests that its program takes."""

from __future__ import annotations

OP_WORK, OP_SUBMIT, OP_WAIT, OP_RUN, OP_STOP, OP_PAUSE, OP_AGAIN = range(7)
"""The first word of a request. `(OP_WORK, system, number, 0)` is a job thread's life; `(OP_SUBMIT, system,
job, edges)`; `(OP_WAIT, system, job, nanoseconds)` gives 1 when done; `(OP_RUN, commands, count, 0)` runs on
this thread; `(OP_STOP, system, 1 or 2, 0)`: threads leave when there is no work, or after their current
chunk; `(OP_PAUSE, count, 0, 0)` takes so many pauses; `(OP_AGAIN, system, job, 0)` submits a job that is
done, without edges, and gives 1, or 0 where its record is in use or threads are to leave."""

LAYOUT = {
    # The system block. Words that different threads write are on different cache lines.
    "EVENT": 0,
    "SLEEPERS": 8,
    "SPINNERS": 9,
    "HELPERS": 10,
    "HELPED": 11,
    "LOCK": 16,
    "ACTIVE_HEAD": 17,
    "ACTIVE_TAIL": 18,
    "INBOX": 24,
    "SPIN": 32,
    "OS_WAIT": 33,
    "OS_WAKE_ONE": 34,
    "OS_WAKE_ALL": 35,
    "OS_YIELD": 36,
    "LONG_SPIN": 37,
    "CORES": 38,
    "THREADS": 39,
    "ROOM": 41,
    "STOP": 40,
    "OS_CORE": 42,
    "FIRST_THREAD": 43,  # its native number
    "OFF_CORE": 44,  # the core that it is kept off, and 1
    "ALLOWED": 48,  # a bit for each core that threads may use
    # A job's record.
    "STATE": 0,
    "COMMANDS": 1,
    "COUNT": 2,
    "LISTED": 3,
    "NEXT": 4,
    "DEPENDENTS": 5,
    "BLOCKERS": 6,
    "PINS": 7,  # of Python: how many calls need the record to stay this job's
    "TICKET": 8,
    "FINISHED": 16,
    "USERS": 24,
    "EDGES": 25,
    "FIRST_EDGE": 26,
    "REQUEST": 32,  # the four words that submit the job, then those that wait for it
}
SYSTEM_WORDS = 64
JOB_WORDS = 40
INLINE_EDGES = 3
