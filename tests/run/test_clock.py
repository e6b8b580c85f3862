from __future__ import annotations

import time
from datetime import datetime, timedelta

from expkit.run.clock import WallClock


def test_time_goes_on_when_the_systems_clock_is_set_back(monkeypatch):
    clock = WallClock()
    before = clock.now()
    past = time.time() - 86_400
    monkeypatch.setattr(time, "time", lambda: past)
    assert 0 <= clock.now() - before < 60
    assert 0 <= clock.elapsed() < 60


def test_timestamps_have_their_offset_from_utc_whatever_the_time_zone(monkeypatch):
    clock = WallClock()
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        moment = datetime.fromisoformat(clock.timestamp())
    finally:
        monkeypatch.undo()
        time.tzset()
    assert moment.utcoffset() == timedelta(0)
    assert abs(moment.timestamp() - time.time()) < 60
