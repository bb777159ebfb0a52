"""Kernel source of the job system's native part: the loop of the job threads.

One entry, `program(request)`, so that a warm start links one object; `request` is the address of four words,
because every further argument costs ctypes 0.2 microseconds. All state is in memory that Python allocates and
never moves: one system block, and one 320-byte record per job, both of 8-byte words.

How it works
    A job is a list of commands. Its TICKET holds (current command, chunks taken from the back, chunks taken
    from the front) in one word, so that any thread takes a chunk with one atomic addition. One half of the
    threads takes from the front, the other from the back: weights then stay in the second-level cache of the
    core that reads them in every run. A thread that helps is one half, the others are the front.
    The thread that finishes a command's last chunk moves the ticket on to the next command; a barrier
    therefore costs a waiting thread nothing but its absence.
    Commands of one chunk are run at once by the thread that gets to them. So are rows that begin or end runs
    of repeated commands (`engine.device.jobs.command_loops`): no other thread reads what they change, as
    nobody has a chunk then. Only as a job's first command such a row is a chunk that a thread takes.
    A job that becomes ready is pushed on INBOX without a lock, so submitting never waits. Job threads move
    the inbox to the list of active jobs under a spin lock that only they (and a helping `complete`) take.
    A thread holds USERS of a job while it may read the job's commands; Python reuses a record only when the
    job is done and USERS is 0. Where a job is to run again, native code sees to that by itself, and that
    nobody in Python counts on the run before (PINS).
    A dependency is an edge (dependent, next) pushed on the DEPENDENTS of the earlier job, which swaps it for
    CLOSED when it completes: pushing on CLOSED means that there is nothing to wait for.
    EVENT counts everything that a thread might be waiting for. Threads spin on it for a while, then sleep
    until it changes: for LONG_SPIN pauses with a job in hand, as its next command is mostly microseconds
    away and waking a thread takes tens of them; as long while others have one and there are CORES to spare;
    and as long after the last job while fewer spin than there are cores, for a caller that soon submits
    another. Else for SPIN pauses.
    No more than ROOM threads work on a job, HELPERS (threads in a `complete`) included. One more than there
    are cores would take turns with the others, and all wait where it loses its turn in the middle of a chunk.
    So a job thread that is one too many leaves the job, and sleeps. HELPED says whether the last job had a
    helper: then no thread is woken in its place until the next one's second command.
    A submitted job wakes the first thread, which is kept off the core of the thread that submits: that goes
    on with the frame, and need not be interrupted for the work to begin.
    A waker adds to EVENT and then reads SLEEPERS and USERS; a sleeper takes itself from USERS, adds to
    SLEEPERS and then compares EVENT: in one total order at least one of the two sees the other.
"""

from __future__ import annotations

import platform

from engine.device.jobs.command_loops import BEGIN, JUMP
from engine.device.jobs.layout import LAYOUT, OP_AGAIN, OP_PAUSE, OP_RUN, OP_STOP, OP_SUBMIT, OP_WAIT, OP_WORK
from engine.device.jobs.waiting import CALL_OS, OS_TEXTS, SET_AFFINITY
from engine.device.native import NativeSource
from engine.device.native.prelude import PRELUDE

_BODY = '''

CLOSED = 1
SIDE_BITS = 20
CHUNK_BITS = 2 * SIDE_BITS
SIDE_MASK = (1 << SIDE_BITS) - 1
MOST_CHUNKS = 1 << (SIDE_BITS - 1)
FRONT, BACK = 0, SIDE_BITS
EVERYONE = 1 << 30


@typed_helper("void(int64)")
def lock(system):
    turns = 0
    while atomic_exchange_i64(system, LOCK, 1) != 0:
        while atomic_load_i64(system, LOCK) != 0:
            turns += 1
            if turns % 256 == 0:
                # The holder may have been taken off its core.
                call_os(load_i64(system, OS_YIELD), 0, 0, 0, 0, 0, 0)
            else:
                cpu_pause()


@typed_helper("void(int64)")
def unlock(system):
    atomic_store_i64(system, LOCK, 0)


@typed_helper("void(int64, int64, int64)")
def wake(system, count, most):
    """Lets up to `count` threads look: those that are spinning do so anyway, up to `most` are woken."""
    asleep = atomic_load_i64(system, SLEEPERS)
    if asleep > 0:
        count = min(min(count - atomic_load_i64(system, SPINNERS), most), asleep)
        if count > 0:
            os_wake(system, system + 8 * EVENT, count)


@typed_helper("int64(int64, int64)")
def room(system, job):
    """How many more threads may gain by working on the job: one that holds it looks at it anyway."""
    return max(load_i64(system, ROOM) - atomic_load_i64(job, USERS), 0)


@typed_helper("int64(int64, int64)")
def spin_limit(system, job):
    """How many pauses are better spent here than asleep, as things are now, with this job held or none."""
    if atomic_load_i64(system, ACTIVE_HEAD) != 0:
        awake = load_i64(system, THREADS) - atomic_load_i64(system, SLEEPERS)
        if job != 0 or awake + atomic_load_i64(system, HELPERS) <= load_i64(system, CORES):
            return load_i64(system, LONG_SPIN)
    elif atomic_load_i64(system, SPINNERS) < load_i64(system, CORES):
        return load_i64(system, LONG_SPIN)
    return load_i64(system, SPIN)


@typed_helper("int64(int64)")
def grain_of(record):
    """The requested chunk size, or one that leaves as many chunks as a ticket can count."""
    return max(load_i64(record, 3), load_i64(record, 2) // MOST_CHUNKS + 1)


@typed_helper("int64(int64)")
def chunks_of(record):
    """At least 1: an empty command is one chunk in which nothing runs."""
    grain = grain_of(record)
    return max((load_i64(record, 2) + grain - 1) // grain, 1)


@typed_helper("void(int64, int64, int64)")
def run_chunk(record, begin, grain):
    total = load_i64(record, 2)
    if begin < total:
        call_kernel(load_i64(record, 0), load_i64(record, 1), begin, min(begin + grain, total))


@typed_helper("int64(int64)")
def chunks_left(job):
    """How many chunks of the job's current command nobody has taken."""
    ticket = atomic_load_i64(job, TICKET)
    command = ticket >> CHUNK_BITS
    if command >= load_i64(job, COUNT):
        return 0
    taken = (ticket & SIDE_MASK) + ((ticket >> SIDE_BITS) & SIDE_MASK)
    return chunks_of(load_i64(job, COMMANDS) + 32 * command) - taken


@typed_helper("void(int64, int64)")
def push(system, job):
    while True:
        head = atomic_load_i64(system, INBOX)
        atomic_store_i64(job, NEXT, head)
        if atomic_cas_i64(system, INBOX, head, job) == head:
            break


@typed_helper("void(int64)")
def drain(system):
    """Inbox to active list, oldest first. Needs the lock."""
    job = atomic_exchange_i64(system, INBOX, 0)
    oldest = 0
    while job != 0:
        following = atomic_load_i64(job, NEXT)
        atomic_store_i64(job, NEXT, oldest)
        oldest = job
        job = following
    while oldest != 0:
        following = atomic_load_i64(oldest, NEXT)
        atomic_store_i64(oldest, NEXT, 0)
        atomic_store_i64(oldest, LISTED, 1)
        tail = load_i64(system, ACTIVE_TAIL)
        if tail == 0:
            atomic_store_i64(system, ACTIVE_HEAD, oldest)
        else:
            atomic_store_i64(tail, NEXT, oldest)
        store_i64(system, ACTIVE_TAIL, oldest)
        oldest = following


@typed_helper("void(int64, int64)")
def unlist(system, job):
    lock(system)
    before = 0
    current = load_i64(system, ACTIVE_HEAD)
    while current != job:
        before = current
        current = load_i64(current, NEXT)
    after = load_i64(job, NEXT)
    if before == 0:
        atomic_store_i64(system, ACTIVE_HEAD, after)
    else:
        store_i64(before, NEXT, after)
    if after == 0:
        store_i64(system, ACTIVE_TAIL, before)
    unlock(system)


@typed_helper("void(int64, int64, int64)")
def finish(system, job, stays):
    unlist(system, job)
    released = 0
    edge = atomic_exchange_i64(job, DEPENDENTS, CLOSED)
    while edge != 0:
        dependent = load_i64(edge, 0)
        # Read before the release: the edge is the dependent's memory.
        edge = load_i64(edge, 1)
        if atomic_add_i64(dependent, BLOCKERS, -1) == 1:
            push(system, dependent)
            released += 1
    atomic_store_i64(job, TICKET, load_i64(job, COUNT) << CHUNK_BITS)
    atomic_store_i64(system, HELPED, min(atomic_load_i64(system, HELPERS), 1))
    if atomic_exchange_i32(job, 2 * STATE, 1) == 2:
        os_wake(system, job + 8 * STATE, EVERYONE)
    if released > 0:
        atomic_add_i32(system, 2 * EVENT, 1)
        # A thread that stays takes one of them itself.
        wake(system, released - stays, EVERYONE)


@typed_helper("void(int64, int64, int64, int64)")
def advance(system, job, command, stays):
    """Starts `command`, the earlier ones being done; finishes the job after its last."""
    while command < load_i64(job, COUNT):
        record = load_i64(job, COMMANDS) + 32 * command
        rows = jump(record)
        if rows != 0:
            command += rows
            continue
        chunks = chunks_of(record)
        if chunks > 1:
            atomic_store_i64(job, FINISHED, 0)
            atomic_store_i64(job, TICKET, command << CHUNK_BITS)
            atomic_add_i32(system, 2 * EVENT, 1)
            wake(system, chunks - 1, room(system, job))
            return
        if atomic_load_i64(system, STOP) == 2:
            return
        run_chunk(record, 0, grain_of(record))
        command += 1
    finish(system, job, stays)


@typed_helper("int64(int64, int64, int64, int64)")
def work_on(system, job, stays, side):
    """Runs chunks of the job until none can be taken; returns how many.

    stays: 1 for a job thread, which continues with other jobs; 0 for one that only helps with this one. side:
    FRONT or BACK, the end from which it takes chunks.
    """
    ran = 0
    while chunks_left(job) > 0 and atomic_load_i64(system, STOP) != 2:
        if stays == 1 and atomic_load_i64(job, USERS) > load_i64(system, ROOM):
            break
        ticket = atomic_add_i64(job, TICKET, 1 << side)
        command = ticket >> CHUNK_BITS
        if command >= load_i64(job, COUNT):
            break
        record = load_i64(job, COMMANDS) + 32 * command
        chunks = chunks_of(record)
        front, back = ticket & SIDE_MASK, (ticket >> SIDE_BITS) & SIDE_MASK
        if front + back < chunks:
            chunk = front if side == FRONT else chunks - 1 - back
            grain = grain_of(record)
            following = command
            if load_i64(record, 0) != BEGIN:
                run_chunk(record, chunk * grain, grain)
                following += 1
            ran += 1
            if atomic_add_i64(job, FINISHED, 1) + 1 == chunks:
                advance(system, job, following, stays)
    return ran


@typed_helper("int64(int64, int64)")
def find_work(system, held):
    """The oldest job with a chunk to take, with USERS counted unless it is `held`; 0 if there is none."""
    # No look without the lock: while another thread moves the inbox, both it and the list may be empty.
    lock(system)
    drain(system)
    found = 0
    more = 0
    job = load_i64(system, ACTIVE_HEAD)
    while job != 0:
        left = chunks_left(job)
        if left > 0 and (job == held or room(system, job) > 0):
            if found == 0:
                found = job
                left -= 1
                if load_i64(job, COUNT) > 1 and atomic_load_i64(system, HELPERS) == 0:
                    # The thread that waited for the last job will help with this one before another one is
                    # awake.
                    more -= atomic_load_i64(system, HELPED)
                if job != held:
                    atomic_add_i64(job, USERS, 1)
            more += min(left, room(system, job))
            # Waking that many threads is all that this count is for.
            if more >= 64:
                break
        job = load_i64(job, NEXT)
    unlock(system)
    if more > 0:
        wake(system, more, EVERYONE)
    return found


@typed_helper("int64(int64)")
def let_go(job):
    if job != 0:
        atomic_add_i64(job, USERS, -1)
    return 0


@typed_helper("int64(int64, int64)")
def leave_crowd(system, job):
    """Lets go of a job that more threads hold than have room; the job as it is held, or 0."""
    while True:
        users = atomic_load_i64(job, USERS)
        if users <= load_i64(system, ROOM):
            return job
        if atomic_cas_i64(job, USERS, users, users - 1) == users:
            return 0


@typed_helper("void(int64, int64)")
def live(system, number):
    """A job thread, from start to stop."""
    job = 0
    turns = 0
    while True:
        event = atomic_load_i32(system, 2 * EVENT)
        if job != 0:
            alone = number & 1 == 1 and atomic_load_i64(system, HELPERS) == 0
            if work_on(system, job, 1, BACK if alone else FRONT) > 0:
                turns = 0
            if atomic_load_i32(job, 2 * STATE) == 1:
                job = let_go(job)
            else:
                job = leave_crowd(system, job)
        found = find_work(system, job)
        if found != 0:
            if found != job:
                let_go(job)
                job = found
            turns = 0
            if atomic_load_i64(system, STOP) == 2:
                break
            continue
        if atomic_load_i64(system, STOP) != 0:
            break
        atomic_add_i64(system, SPINNERS, 1)
        while atomic_load_i32(system, 2 * EVENT) == event and turns < spin_limit(system, job):
            if job != 0 and atomic_load_i32(job, 2 * STATE) == 1:
                job = let_go(job)  # a new submission of it need not wait for an event
            cpu_pause()
            turns += 1
        atomic_add_i64(system, SPINNERS, -1)
        if atomic_load_i32(system, 2 * EVENT) != event:
            turns = 0
            continue
        job = let_go(job)
        atomic_add_i64(system, SLEEPERS, 1)
        if atomic_load_i32(system, 2 * EVENT) == event:
            os_rest(system, system + 8 * EVENT, event, number)
        atomic_add_i64(system, SLEEPERS, -1)
        turns = 0
    let_go(job)


@typed_helper("void(int64, int64, int64)")
def submit(system, job, edges):
    """Makes a new job of a record that says which commands and that no thread reads, and lets it join."""
    atomic_store_i64(job, STATE, 0)
    atomic_store_i64(job, LISTED, 0)
    atomic_store_i64(job, NEXT, 0)
    atomic_store_i64(job, DEPENDENTS, 0)
    atomic_store_i64(job, BLOCKERS, edges + 1)
    atomic_store_i64(job, TICKET, 0)
    atomic_store_i64(job, FINISHED, 0)
    satisfied = 1
    for k in range(edges):
        edge = load_i64(job, EDGES) + 16 * k
        earlier = load_i64(edge, 0)
        store_i64(edge, 0, job)
        while True:
            head = atomic_load_i64(earlier, DEPENDENTS)
            if head == CLOSED:
                satisfied += 1
                break
            atomic_store_i64(edge, 1, head)
            if atomic_cas_i64(earlier, DEPENDENTS, head, edge) == head:
                break
    if atomic_add_i64(job, BLOCKERS, -satisfied) == satisfied:
        push(system, job)
        atomic_add_i32(system, 2 * EVENT, 1)
        # One is enough: a thread with more work than it can do wakes the others, off the submitting thread.
        if atomic_load_i64(system, SLEEPERS) > 0 and atomic_load_i64(system, SPINNERS) == 0:
            os_wake_first(system, system + 8 * EVENT)


@typed_helper("int64(int64, int64)")
def submit_again(system, job):
    """Submits a job of a record that nobody has in use, as it was; returns whether it did."""
    if atomic_load_i32(job, 2 * STATE) != 1 or atomic_load_i64(job, USERS) != 0:
        return 0
    if load_i64(job, PINS) != 0 or atomic_load_i64(system, STOP) != 0:
        return 0
    submit(system, job, 0)
    return 1


@typed_helper("int64(int64, int64, int64)")
def wait(system, job, nanoseconds):
    """Spins, then sleeps for a time at most; returns 1 when the job is done.

    A negative time also means: help with the job first, for as long as there is anything to do.
    """
    helping = False
    if nanoseconds < 0:
        lock(system)
        drain(system)
        helping = atomic_load_i64(job, LISTED) == 1 and atomic_load_i32(job, 2 * STATE) != 1
        if helping:
            atomic_add_i64(job, USERS, 1)
            atomic_add_i64(system, HELPERS, 1)
        unlock(system)
    turns = 0
    limit = max(load_i64(system, SPIN), 1)
    while turns < limit and atomic_load_i32(job, 2 * STATE) != 1:
        if helping and work_on(system, job, 0, BACK) > 0:
            turns = 0
        cpu_pause()
        turns += 1
        if helping:
            limit = max(spin_limit(system, job), 1)
    if helping:
        atomic_add_i64(system, HELPERS, -1)
        let_go(job)
    if atomic_load_i32(job, 2 * STATE) == 1:
        return 1
    if helping:
        # A thread may have left the job to this one.
        atomic_add_i32(system, 2 * EVENT, 1)
        wake(system, 1, EVERYONE)
    if atomic_cas_i32(job, 2 * STATE, 0, 2) != 1:
        os_wait(system, job + 8 * STATE, 2, abs(nanoseconds))
    return 1 if atomic_load_i32(job, 2 * STATE) == 1 else 0


@typed_helper("void(int64, int64)")
def stop(system, how):
    atomic_store_i64(system, STOP, how)
    atomic_add_i32(system, 2 * EVENT, 1)
    os_wake(system, system + 8 * EVENT, EVERYONE)


def program(request):
    operation = load_i64(request, 0)
    a, b, c = load_i64(request, 1), load_i64(request, 2), load_i64(request, 3)
    if operation == OP_RUN:
        run(a, b)
    elif operation == OP_SUBMIT:
        submit(a, b, c)
    elif operation == OP_AGAIN:
        return submit_again(a, b)
    elif operation == OP_WAIT:
        return wait(a, b, c)
    elif operation == OP_WORK:
        live(a, b)
    elif operation == OP_STOP:
        stop(a, b)
    elif operation == OP_PAUSE:
        for _ in range(a):
            cpu_pause()
    return 0
'''


def program_source(waiting: str, futex_number: int = 0) -> NativeSource:
    """The job system for one way of waiting: a key of `OS_TEXTS`."""
    constants = {**LAYOUT, "OP_WORK": OP_WORK, "OP_SUBMIT": OP_SUBMIT, "OP_WAIT": OP_WAIT, "OP_RUN": OP_RUN}
    constants |= {"OP_STOP": OP_STOP, "OP_PAUSE": OP_PAUSE, "OP_AGAIN": OP_AGAIN, "FUTEX": futex_number}
    constants["BEGIN"] = BEGIN
    constants["SET_AFFINITY"] = SET_AFFINITY.get(platform.machine().lower(), 0)
    head = "".join(f"{name} = {value}\n" for name, value in constants.items())
    text = PRELUDE + head + CALL_OS + OS_TEXTS[waiting] + JUMP + _BODY
    return NativeSource(f"jobs_{waiting}", text, "program", "int64(int64)")
