"""One job at a time, its error on the main thread, the thread gone after close."""

from __future__ import annotations

import threading

import pytest

from expkit.checkpoint.writer import BackgroundWriter, InlineWriter


def fail():
    raise OSError(28, "full")


def test_a_job_runs_behind_the_callers_back_and_the_next_waits_for_it():
    writer, gate, order = BackgroundWriter(), threading.Event(), []
    writer.submit(lambda: (gate.wait(10), order.append("first"))[0] and None)
    assert order == []
    threading.Timer(0.02, gate.set).start()
    writer.submit(lambda: order.append("second"))
    assert order[0] == "first"
    writer.close()
    assert order == ["first", "second"]


@pytest.mark.parametrize("later", ["submit", "wait", "close"])
def test_a_failure_is_raised_at_the_next_call_and_only_once(later):
    writer = BackgroundWriter()
    writer.submit(fail)
    call = {"submit": lambda: writer.submit(lambda: None), "wait": writer.wait}.get(
        later, writer.close
    )
    with pytest.raises(OSError, match="full"):
        call()
    writer.wait()
    writer.close()


def test_close_ends_the_thread_and_may_be_repeated():
    before = threading.active_count()
    writer = BackgroundWriter()
    writer.close()
    done = []
    for _ in range(2):
        writer.submit(lambda: done.append(1))
        writer.close()
        writer.close()
    assert done == [1, 1]
    assert threading.active_count() == before


def test_inline_work_is_done_and_raised_at_once():
    writer, done = InlineWriter(), []
    writer.submit(lambda: done.append(1))
    assert done == [1]
    with pytest.raises(OSError, match="full"):
        writer.submit(fail)
    writer.wait()
    writer.close()
