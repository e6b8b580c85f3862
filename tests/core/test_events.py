from __future__ import annotations

import numpy as np
import pytest

from expkit.core.context import Context
from expkit.core.errors import CallbackError, DataError
from expkit.core.events import EVENTS, Callback, EventBus, name_callbacks, on
from expkit.core.filter import Filter
from expkit.core.progress import Progress

STEP_EVENTS = (
    "batch_start",
    "loss_start",
    "backward_start",
    "backward_end",
    "step_start",
    "step_end",
    "batch_end",
)


class Recorder(Callback):
    def __init__(self, name: str, calls: list) -> None:
        self.name = name
        self.calls = calls
        self.saved: dict = {}

    def step_end(self, context) -> None:
        self.calls.append((self.name, context))

    def eval_end(self, context, metrics) -> None:
        self.calls.append((self.name, dict(metrics)))

    def state(self):
        return self.saved

    def load_state(self, state) -> None:
        self.saved = dict(state)


def fired(callback: Callback, event: str, times: int, *, is_main: bool = True) -> None:
    bus = EventBus([callback], is_main)
    for _ in range(times):
        bus.fire(event, None)


def numbers(event: str = "step_end", times: int = 7, **choice) -> list[int]:
    """The calls, counted from 1, at which a filtered function ran."""
    bus_calls = 0
    seen = []

    @on(event, **choice)
    def note(context) -> None:
        seen.append(bus_calls)

    bus = EventBus([note], is_main=True)
    for _ in range(times):
        bus_calls += 1
        bus.fire(event, None)
    return seen


def test_events_stand_in_the_order_of_a_run():
    before, after = EVENTS.index("epoch_start"), EVENTS.index("eval_start")
    assert EVENTS[before + 1 : after] == STEP_EVENTS
    assert EVENTS[: before + 1] == ("fit_start", "epoch_start")
    assert EVENTS[after:] == (
        "eval_start",
        "eval_end",
        "save",
        "load",
        "epoch_end",
        "exception",
        "fit_end",
    )


def test_every_event_is_a_method_of_callback_and_does_nothing_there():
    for event in EVENTS:
        assert callable(getattr(Callback, event))
    bus = EventBus([Callback()], is_main=True)
    assert all(getattr(bus, event) == () for event in EVENTS)


def test_callbacks_are_told_in_their_given_order():
    calls: list = []
    bus = EventBus({"b": Recorder("b", calls), "a": Recorder("a", calls)}, is_main=True)
    bus.fire("step_end", 1)
    bus.fire("eval_end", 1, {"accuracy": 0.5})
    assert calls == [("b", 1), ("a", 1), ("b", {"accuracy": 0.5}), ("a", {"accuracy": 0.5})]


def test_event_that_no_callback_overrides_has_no_handler():
    bus = EventBus([Recorder("a", [])], is_main=True)
    assert [event for event in STEP_EVENTS if getattr(bus, event)] == ["step_end"]


def test_every_3_of_7_steps_runs_at_3_and_6():
    assert numbers(every=3) == [3, 6]


def test_once_2_runs_at_2():
    assert numbers(once=2) == [2]


def test_when_decides_by_the_number_of_the_call():
    assert numbers(when=lambda number: number in (1, 5)) == [1, 5]


def test_no_filter_runs_at_each_call():
    assert numbers() == [1, 2, 3, 4, 5, 6, 7]


def test_main_callback_is_not_told_on_other_ranks():
    calls: list = []

    @on("step_end", run_on="main")
    def note(context) -> None:
        calls.append(context)

    fired(note, "step_end", 1, is_main=False)
    assert calls == []
    fired(note, "step_end", 1, is_main=True)
    assert calls == [None]


def test_all_callback_is_told_on_every_rank():
    calls: list = []
    fired(Recorder("a", calls), "step_end", 1, is_main=False)
    assert len(calls) == 1


def test_function_gets_the_arguments_of_its_event():
    seen = []

    @on("eval_end")
    def note(context, metrics) -> None:
        seen.append((context, metrics))

    EventBus([note], is_main=True).fire("eval_end", "context", {"loss": 1.0})
    assert seen == [("context", {"loss": 1.0})]


def test_function_callback_overrides_its_one_event_only():
    @on("epoch_end")
    def note(context) -> None:
        """What it is for."""

    bus = EventBus([note], is_main=True)
    assert [event for event in EVENTS if getattr(bus, event)] == ["epoch_end"]
    assert list(bus.callbacks) == ["note"]
    assert note.__doc__ == "What it is for."


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"event": "step_ends"}, "step_ends.*allowed: fit_start"),
        ({"event": "step_end", "run_on": "rank0"}, "rank0.*allowed: all, main"),
        ({"event": "step_end", "every": 0}, "every is 0; it must be 1 or more"),
        ({"event": "step_end", "once": -1}, "once is -1; it must be 1 or more"),
        ({"event": "step_end", "every": 2, "once": 2}, "give one of every, once, when"),
    ],
)
def test_wrong_use_of_on_is_refused_at_once(arguments, message):
    with pytest.raises(ValueError, match=message):
        on(**arguments)


def test_function_without_a_filter_is_the_handler_itself():
    def note(context) -> None: ...

    made = on("step_end")(note)
    assert made.step_end is note
    assert made.state() == {}


def test_filter_without_a_choice_lets_all_calls_pass():
    assert Filter().is_open
    assert not Filter(every=1).is_open
    assert all(Filter().passes(number) for number in range(1, 5))


def test_error_names_the_callback_and_the_event_and_keeps_the_cause():
    @on("step_end")
    def broken(context) -> None:
        raise ZeroDivisionError("by nothing")

    with pytest.raises(
        CallbackError, match="callback mine raised in step_end: ZeroDivisionError: by nothing"
    ) as caught:
        EventBus({"mine": broken}, is_main=True).fire("step_end", None)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_error_ends_the_event():
    calls: list = []

    @on("step_end")
    def broken(context) -> None:
        raise DataError("no")

    bus = EventBus([broken, Recorder("after", calls)], is_main=True)
    with pytest.raises((CallbackError, DataError)):
        bus.fire("step_end", None)
    assert calls == []


def test_interrupt_is_not_turned_into_an_error():
    @on("step_end")
    def stop(context) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        EventBus([stop], is_main=True).fire("step_end", None)


def test_names_of_a_plain_list_are_class_names_numbered_where_they_repeat():
    calls: list = []
    named = name_callbacks([Recorder("x", calls), Callback(), Recorder("y", calls)])
    assert list(named) == ["Recorder", "Callback", "Recorder_2"]


def parts(stops, event="step_end", times=12, **choice) -> list[int]:
    """The calls at which a filtered function runs in a run that is stopped and goes on."""
    seen: list[int] = []
    calls: list[None] = []
    state: dict = {}
    for stop in [*stops, times]:

        @on(event, **choice)
        def note(context) -> None:
            seen.append(len(calls))

        bus = EventBus([note], is_main=True)
        bus.load_state(state)
        while len(calls) < stop:
            calls.append(None)
            bus.fire(event, None)
        state = bus.state()
    return seen


@pytest.mark.parametrize("stops", [[], [5], [3], [1, 2, 6], [*range(12)]])
def test_calls_are_counted_over_all_parts_of_a_run(stops):
    assert parts(stops, every=3) == [3, 6, 9, 12]
    assert parts(stops, once=2) == [2]
    assert parts(stops, when=lambda number: number in (1, 7)) == [1, 7]


def test_functions_of_one_name_keep_their_own_counts():
    seen = []

    def make(every):
        @on("step_end", every=every)
        def note(context) -> None:
            seen.append(every)

        return note

    first = EventBus([make(2), make(3)], is_main=True)
    for _ in range(5):
        first.fire("step_end", None)
    assert first.state() == {"note": {"num_calls": 5}, "note_2": {"num_calls": 5}}
    seen.clear()
    second = EventBus([make(2), make(3)], is_main=True)
    second.load_state({"note": {"num_calls": 1}, "note_2": {"num_calls": 1}})
    second.fire("step_end", None)
    assert seen == [2]


def test_one_filter_may_decorate_two_functions():
    seen = []
    every_second = on("step_end", every=2)
    a, b = every_second(lambda context: seen.append("a")), every_second(lambda _: seen.append("b"))
    bus = EventBus([a, b], is_main=True)
    for _ in range(2):
        bus.fire("step_end", None)
    assert seen == ["a", "b"]


def test_what_a_callback_goes_on_changing_is_not_changed_in_a_state_that_was_taken():
    callback = Recorder("a", [])
    callback.saved = {"sums": np.zeros(3), "rows": [{"x": [1, 2]}], "pair": (1, 2)}
    state = EventBus({"a": callback}, is_main=True).state()["a"]
    callback.saved["sums"] += 1
    callback.saved["rows"][0]["x"].append(3)
    assert state["sums"].tolist() == [0, 0, 0]
    assert state["rows"] == [{"x": [1, 2]}]
    assert state["pair"] == [1, 2]


def test_a_state_that_is_a_copy_is_not_copied_again():
    array = np.zeros(3)
    callback = Recorder("a", [])
    callback.gives_copies, callback.saved = True, {"array": array}
    assert EventBus({"a": callback}, is_main=True).state()["a"]["array"] is array


@pytest.mark.parametrize(("epoch_step", "expected"), [(0, [2]), (3, [])])
def test_the_rest_of_an_epoch_is_no_second_start_of_it(epoch_step, expected):
    seen = []

    @on("epoch_start", every=2)
    def note(context) -> None:
        seen.append(2)

    bus = EventBus([note], is_main=True)
    bus.load_state({"note": {"num_calls": 1}})
    bus.fire("epoch_start", Context(Progress(epoch_step=epoch_step), None))
    assert seen == expected


def test_callbacks_of_the_checkpoint_that_are_gone_are_named_in_one_warning(caplog):
    bus = EventBus({"a": Recorder("a", [])}, is_main=True)
    bus.load_state({"ema": {"x": 1}, "a": {"count": 1}, "early_stop": {"x": 1}})
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "callbacks that this run lacks: early_stop, ema;" in record.getMessage()


def test_a_state_that_a_callback_cannot_take_is_an_error_with_its_name():
    @on("step_end", every=2)
    def note(context) -> None: ...

    message = "callback note raised in load_state: KeyError: 'num_calls'"
    with pytest.raises(CallbackError, match=message):
        EventBus([note], is_main=True).load_state({"note": {"waited": 3}})


def test_state_is_by_name_and_comes_back_to_the_same_name():
    first = EventBus(
        {"a": Recorder("a", []), "b": Recorder("b", []), "c": Callback()}, is_main=True
    )
    first.callbacks["a"].saved = {"count": 3}
    assert first.state() == {"a": {"count": 3}}
    second = EventBus({"new": Recorder("n", []), "a": Recorder("a", [])}, is_main=True)
    second.load_state(first.state() | {"gone": {"count": 1}})
    assert second.callbacks["a"].saved == {"count": 3}
    assert second.callbacks["new"].saved == {}


def test_a_state_without_an_end_is_an_error_that_names_the_callback():
    class Endless(Callback):
        def state(self):
            state = {}
            state["own"] = state
            return state

    with pytest.raises(CallbackError, match="callback mine raised in state: RecursionError"):
        EventBus({"mine": Endless()}, is_main=True).state()
