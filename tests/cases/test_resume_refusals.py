"""Case C4: a checkpoint that is whole but of something else is refused, and nothing is changed."""

from __future__ import annotations

import pytest

from expkit.checkpoint import CheckpointStore
from expkit.core.errors import ConfigError, MismatchError
from expkit.data import Data
from expkit.optimizers import SGD, Adam
from tests.cases.parts import Probe, interrupted, make_trainer, samples

TWO = {"a": Adam(params="*.linear_0.*"), "b": Adam(params="*output*")}


def other_values():
    rows = samples(20)
    rows["x"][0] += 1
    return rows


def of_20(**options):
    return Data(samples(20), batch_size=4, **options)


def left_behind(root, framework="numpy", step=12, **options):
    """Checkpoints after steps 5, 10 and the last, five steps an epoch; gives the store."""
    probe = Probe()
    store = CheckpointStore(root, keep_last=None)
    made = {"data": of_20(), "callbacks": [probe], "checkpoint": store, "save_every": 5}
    interrupted(make_trainer(framework, **{**made, **options}), probe, step)
    store.close()
    return store


def content(root):
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def refused(root, step, match, framework="numpy", **options):
    """Going on from a checkpoint raises, with exit code 2, and leaves what is on the disk."""
    before = content(root)
    store = CheckpointStore(root, keep_last=None)
    trainer = make_trainer(framework, **{"data": of_20(), "checkpoint": store, **options})
    with pytest.raises((MismatchError, ConfigError), match=match) as caught:
        trainer.load_state(store.load(root / f"step-{step:08d}")[0])
    store.close()
    assert caught.value.exit_code == 2
    assert content(root) == before
    return str(caught.value)


@pytest.mark.parametrize("step", [10, 12], ids=["between", "inside"])
@pytest.mark.parametrize(
    ("data", "difference"),
    [
        (other_values(), "other values of x"),
        ({name: column[::-1].copy() for name, column in samples(20).items()}, "values of x, y"),
        (samples(24), "24 samples, it had 20"),
        (samples(16), "16 samples, it had 20"),
        ({name: samples(20)[name] for name in ("x", "y")}, "other values of index"),
    ],
    ids=["values", "order", "more", "fewer", "columns"],
)
def test_other_data(tmp_path, step, data, difference):
    left_behind(tmp_path)
    match = f"another training set: this one has .*{difference}"
    text = refused(tmp_path, step, match, data=Data(data, batch_size=4))
    assert "init_from=RUN in place of resume=RUN" in text
    assert "data.source" in text


def test_other_data_of_items_is_known_by_its_length(tmp_path):
    rows = [{"x": row, "y": y} for row, y in zip(*map(samples(20).get, ("x", "y")), strict=True)]
    probe, store = Probe(), CheckpointStore(tmp_path)
    made = {"callbacks": [probe], "checkpoint": store}
    interrupted(make_trainer(data=Data(rows, batch_size=4), **made), probe, 5)
    store.close()
    refused(tmp_path, 5, "19 samples, it had 20", data=Data(rows[1:], batch_size=4))


@pytest.mark.parametrize("step", [10, 12])
def test_a_checkpoint_that_knows_nothing_of_the_content_is_accepted(tmp_path, step):
    store = left_behind(tmp_path)
    state, _ = store.load(tmp_path / f"step-{step:08d}")
    del state["trainer"]["data"]["content"]
    trainer = make_trainer(data=of_20())
    trainer.load_state(state)
    assert trainer.fit().steps == 15


def test_another_model(framework, tmp_path):
    left_behind(tmp_path, framework)
    match = r"another model: .*linear_0.* has shape \(.*8.*\) there, \(.*9.*\) here"
    refused(tmp_path, 5, match, framework, mlp={"hidden": (9,)})
    refused(tmp_path, 5, "another model: it lacks .*linear_1", framework, mlp={"hidden": (8, 8)})


@pytest.mark.parametrize(
    ("before", "now", "match"),
    [
        (
            SGD(momentum=0.9),
            Adam(),
            r"default.*another optimizer \((momentum_buffer|velocity)\), this one keeps \w+, \w+",
        ),
        (Adam(), SGD(), r"default.*of another optimizer \(\w+, \w+, .*\), this one keeps nothing"),
        (Adam(), TWO, "the checkpoint has other optimizers: default; here: a, b"),
        (TWO, Adam(), "the checkpoint has other optimizers: a, b; here: default"),
        (Adam(), Adam(params="*output*"), "optimizer default does not train .*linear_0"),
    ],
    ids=["kind", "fewer accumulators", "more", "fewer", "other parameters"],
)
def test_other_optimizers(framework, tmp_path, before, now, match):
    left_behind(tmp_path, framework, optimizer=before)
    refused(tmp_path, 5, match, framework, optimizer=now)


@pytest.mark.parametrize(
    ("before", "now"), [("numpy", "torch"), ("torch", "numpy"), ("paddle", "torch")]
)
def test_another_framework(tmp_path, before, now):
    for name in {before, now} - {"numpy"}:
        pytest.importorskip(name)
    left_behind(tmp_path, before)
    text = refused(tmp_path, 5, f"of a run on {before}, this one is on {now}", now)
    assert "init_from=RUN in place of resume=RUN" in text


def test_another_monitor(tmp_path):
    data = Data(samples(20), samples(4, 1), batch_size=4)
    left_behind(tmp_path, data=data, monitor="-loss")
    refused(tmp_path, 5, "is accuracy.*judged by -loss", data=data, monitor="accuracy")
