from __future__ import annotations

import io
import logging
import re
import sys
import threading

import pytest

from expkit.callbacks import ProgressBar
from expkit.callbacks.announce import announce
from expkit.callbacks.pace import Pace, duration, three_digits
from expkit.core.errors import ConfigError
from expkit.core.events import Context, EventBus
from expkit.core.monitor import Monitor
from expkit.core.progress import Progress
from tests.callbacks.stub_run import evaluate


@pytest.fixture(autouse=True)
def _follow_clock(clock, monkeypatch):
    monkeypatch.setattr("expkit.callbacks.progress_bar.monotonic", clock)


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO)
    return lambda: [record.getMessage() for record in caplog.records]


def train(
    context: Context, callback: ProgressBar, clock, *, step_s: float, epochs: int = 2
) -> None:
    """Epochs with an evaluation at the end of each, as the loop tells them."""
    progress = context.progress
    callback.fit_start(context)
    for _ in range(epochs):
        for _ in range(progress.steps_per_epoch):
            clock.now += step_s
            progress.step += 1
            progress.epoch_step += 1
            if progress.step % 10 == 0:
                context.metrics["loss"] = 1.0 / progress.step
            callback.step_end(context)
        evaluate(context, callback, loss=0.25, accuracy=progress.step / 1000)
        progress.epoch, progress.epoch_step = progress.epoch + 1, 0
        callback.epoch_end(context)
    callback.fit_end(context)


def test_lines_say_position_loss_metrics_speed_and_time_left(context, clock, lines):
    train(context, ProgressBar("plain"), clock, step_s=0.05)
    assert lines() == [
        "epoch 1/2 step 100/200 | loss 0.01 | eval accuracy 0.1 loss 0.25 | 20 steps/s"
        " | 0:05 elapsed | 0:05 left",
        "epoch 2/2 step 200/200 | loss 0.005 | eval accuracy 0.2 loss 0.25 | 20 steps/s"
        " | 0:10 elapsed | 0:00 left",
    ]


def test_long_epochs_give_a_line_each_period(context, clock, lines):
    train(context, ProgressBar("plain", every_s=30), clock, step_s=1.0)
    assert [line.split(" | ")[0] for line in lines()] == [
        f"epoch {1 + (step - 1) // 100}/2 step {step}/200"
        for step in (30, 60, 90, 100, 130, 160, 190, 200)
    ]


@pytest.mark.parametrize("step_s", [0.0, 0.001, 0.1, 1.0])
def test_two_epochs_of_a_hundred_steps_fill_no_more_than_40_lines(context, clock, lines, step_s):
    train(context, ProgressBar("plain"), clock, step_s=step_s)
    assert 1 <= len(lines()) <= 40
    assert not any("\r" in line or "\n" in line for line in lines())


def test_very_short_epochs_share_lines_and_the_last_one_is_told(context, clock, lines):
    context.progress.n_epochs = context.progress.total_steps = 1000
    context.progress.steps_per_epoch = 1
    train(context, ProgressBar("plain"), clock, step_s=0.01, epochs=1000)
    assert len(lines()) <= 21
    assert lines()[-1].startswith("epoch 1000/1000 step 1000/1000 | ")


def test_end_within_an_epoch_has_its_line(context, clock, lines):
    callback = ProgressBar("plain")
    callback.fit_start(context)
    context.progress.step = context.progress.epoch_step = 7
    callback.fit_end(context)
    assert lines() == ["epoch 1/2 step 7/200 | 0:00 elapsed"]


def test_run_without_steps_says_nothing(context, lines):
    callback = ProgressBar("plain")
    callback.fit_start(context)
    callback.fit_end(context)
    assert lines() == []


def test_none_says_nothing(context, clock, lines, capsys):
    train(context, ProgressBar("none"), clock, step_s=1.0)
    assert lines() == []
    assert capsys.readouterr() == ("", "")


def test_output_that_is_no_terminal_has_no_bar_and_loads_no_rich(
    context, clock, monkeypatch, lines
):
    monkeypatch.setitem(sys.modules, "rich", None)
    train(context, ProgressBar(), clock, step_s=0.05)
    assert len(lines()) == 2


def test_many_metrics_are_cut_with_the_monitored_one_first(context, clock, lines):
    callback = ProgressBar("plain")
    callback.fit_start(context)
    context.eval_metrics = {f"m{i}": 0.5 for i in range(8)} | {"accuracy": 0.9}
    context.progress.step = 1
    callback.fit_end(context)
    assert "eval accuracy 0.9 m0 0.5 m1 0.5 m2 0.5 m3 0.5 m4 0.5 and 3 more | " in lines()[0]


def test_parts_of_a_metric_are_left_to_the_records(context, clock, lines):
    callback = ProgressBar("plain")
    callback.fit_start(context)
    context.eval_metrics = {"loss": 1.0, "f1": 0.5, "f1/precision": 0.4, "confusion/0/1": 3.0}
    context.progress.step = 1
    callback.fit_end(context)
    assert "| eval loss 1 f1 0.5 |" in lines()[0]


def test_metrics_of_named_sets_are_told_and_a_part_where_it_is_monitored(context, clock, lines):
    context.monitor = Monitor("dev/f1/recall")
    context.eval_metrics = {"test/loss": 2.0} | {
        f"dev/{name}": 0.5 for name in ("loss", "f1", "f1/precision", "f1/recall")
    }
    callback = ProgressBar("plain")
    callback.fit_start(context)
    context.progress.step = 1
    callback.fit_end(context)
    assert "| eval dev/f1/recall 0.5 test/loss 2 dev/loss 0.5 dev/f1 0.5 |" in lines()[0]


def test_the_first_epoch_is_told_however_short_it_is(context, clock, lines):
    train(context, ProgressBar("plain"), clock, step_s=0.001)
    assert [line.split(" | ")[0] for line in lines()] == [
        "epoch 1/2 step 100/200",
        "epoch 2/2 step 200/200",
    ]


@pytest.mark.parametrize(
    ("speed", "text"),
    [(1043.2, "1,040"), (999.9, "1,000"), (123.4, "123"), (45.67, "45.7"), (0.01234, "0.0123")],
)
def test_speeds_have_three_digits_and_no_exponent(speed, text):
    assert three_digits(speed) == text


def drawn_at(width, context, clock, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    callback = ProgressBar("bar")
    context.progress.step = 0
    callback.fit_start(context)
    context.progress.step = 150
    context.metrics["loss"] = 0.5
    context.eval_metrics = {"accuracy": 0.9, "loss": 0.25, "r2": 0.125}
    clock.now += 1.0
    capsys.readouterr()
    callback.step_end(context)
    drawn = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().out)
    callback.fit_end(context)
    return drawn.strip("\r\n")


def test_a_narrow_terminal_keeps_epoch_and_step_and_drops_metrics_first(
    context, clock, monkeypatch, capsys
):
    speed = "150 steps/s | 0:01 elapsed | 0:00 left"
    texts = {
        160: f"loss 0.5 | eval accuracy 0.9 loss 0.25 r2 0.125 | {speed}",
        100: f"loss 0.5 | {speed}",
        80: "loss 0.5 | 150 steps/s | 0:01 elapsed",
        45: "loss 0.5",
        36: "",
    }
    for width, text in texts.items():
        drawn = drawn_at(width, context, clock, monkeypatch, capsys)
        assert re.fullmatch(rf"epoch 1/2 \S{{16}} 150/200 {re.escape(text)} *", drawn)


def test_skipped_updates_are_counted(context, clock, lines):
    callback = ProgressBar("plain")
    callback.fit_start(context)
    context.progress.step, context.progress.skipped_steps = 5, 2
    callback.fit_end(context)
    assert "| 2 skipped |" in lines()[0]


def test_bar_is_redrawn_by_time_without_a_thread(context, clock, capsys, lines):
    threads = threading.active_count()
    callback = ProgressBar("bar")
    callback.fit_start(context)
    capsys.readouterr()
    context.progress.step = 1
    callback.step_end(context)
    assert capsys.readouterr().out == ""
    clock.now += 0.3
    context.metrics["loss"] = 0.5
    callback.step_end(context)
    drawn = capsys.readouterr().out
    assert "epoch 1/2" in drawn
    assert "1/200" in drawn
    assert threading.active_count() == threads
    callback.exception(context, ValueError())
    callback.fit_end(context)


def test_many_short_evaluations_do_not_redraw_the_bar_each(context, clock, capsys):
    callback = ProgressBar("bar")
    callback.fit_start(context)
    capsys.readouterr()
    for _ in range(100):
        clock.now += 0.01
        evaluate(context, callback, accuracy=0.5)
    assert 1 <= capsys.readouterr().out.count("evaluating") <= 5
    callback.fit_end(context)


def test_bar_leaves_streams_and_log_handlers_as_they_were(context, clock, capsys, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    out, err = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setenv("TERM", "xterm")
    handler = logging.StreamHandler(err)
    logger = logging.getLogger("expkit")
    logger.addHandler(handler)
    try:
        callback = ProgressBar()
        callback.fit_start(context)
        assert handler.stream is not err
        logger.warning("above the bar")
        assert "above the bar" in out.getvalue()
        callback.fit_end(context)
        assert handler.stream is err
        assert (sys.stdout, sys.stderr) == (out, err)
        assert err.getvalue() == ""
    finally:
        logger.removeHandler(handler)


def test_bar_goes_away_at_the_step_in_which_a_stop_is_asked_for(context, capsys):
    stdout = sys.stdout
    callback = ProgressBar("bar")
    callback.fit_start(context)
    assert sys.stdout is not stdout
    context.request_stop("SIGTERM")
    callback.step_end(context)
    assert sys.stdout is stdout


def test_rank_0_alone_speaks():
    assert EventBus([ProgressBar()], is_main=False).step_end == ()


def test_line_reaches_standard_error_where_nothing_handles_the_log(capsys):
    log = logging.Logger("nobody listens")
    announce(log, "100 %")
    assert capsys.readouterr().err == "100 %\n"


@pytest.mark.parametrize("style", ["", "rich", None])
def test_unknown_style_is_refused(style):
    with pytest.raises(
        ConfigError, match=r"progress\.style: is .*; allowed: auto, bar, plain, none"
    ):
        ProgressBar(style)


@pytest.mark.parametrize("every_s", [0, -1, float("nan")])
def test_period_below_0_is_refused(every_s):
    with pytest.raises(ConfigError, match=r"callbacks\.progress\.every_s=30"):
        ProgressBar(every_s=every_s)


def test_time_left_is_never_negative():
    pace = Pace(0, 0.0)
    assert pace.seconds_left(Progress(step=30, total_steps=20), 10.0) == 0.0


def test_time_left_follows_the_speed_of_this_process_only():
    pace = Pace(50, 100.0)
    assert pace.seconds_left(Progress(step=60, total_steps=100), 120.0) == 80.0


def test_time_left_is_unknown_without_an_end_or_a_speed():
    pace = Pace(0, 0.0)
    assert pace.seconds_left(Progress(step=10, n_epochs=3), 10.0) is None
    assert pace.seconds_left(Progress(step=0, total_steps=10), 10.0) is None
    assert pace.steps_per_s(Progress(step=10), 0.0) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (59.6, "1:00"), (61, "1:01"), (3600, "1:00:00"), (90061, "25:01:01")],
)
def test_duration_is_hours_minutes_seconds(seconds, text):
    assert duration(seconds) == text
