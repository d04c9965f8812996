"""What lets go of its threads in a child lets go of nothing else."""

import gc
import weakref

from pegboard.core.after_fork import Threads, renew_after_fork


def test_threads_are_made_anew_after_a_fork_and_closed_once() -> None:
    threads = Threads(1, name="tried")
    first = threads.executor
    assert first is threads.executor
    threads.after_fork()
    assert threads.executor is not first
    assert threads.executor.submit(lambda: 7).result() == 7
    threads.close()
    threads.close()
    first.shutdown()


def test_what_nobody_holds_is_not_kept_for_a_fork() -> None:
    class Inheritor:
        def after_fork(self) -> None: ...

    inheritor = Inheritor()
    renew_after_fork(inheritor)
    known = weakref.ref(inheritor)
    del inheritor
    gc.collect()
    assert known() is None
