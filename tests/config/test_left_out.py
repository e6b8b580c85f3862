"""Keys that the schema of a group has and that the user's file leaves out."""

import pytest

from expkit.config.handover import for_hydra
from expkit.config.validation import check


@pytest.fixture(autouse=True)
def short_files(write):
    write("conf/data/mine.yaml", "source: {_target_: my.data}\ninfo: {num_features: 2}\n")
    write("conf/data/bare.yaml", "source: {_target_: my.data}\n")
    write("conf/trainer/mine.yaml", "_target_: my.Trainer\nn_epochs: 2\n")
    write("conf/checkpoint/mine.yaml", "_target_: my.Store\nsave_every: 1ep\n")


# model=mlp asks for facts about the data that these tests are not about.
MODEL = ("model.in_features=2", "model.out_features=2")


@pytest.mark.parametrize("mark", ["", "+", "++"])
@pytest.mark.parametrize(
    ("choice", "key", "value"),
    [
        ("data=mine", "data.global_batch_size", 32),
        ("data=mine", "data.drop_last", True),
        ("trainer=mine", "trainer.clip_norm", 1.5),
        ("checkpoint=mine", "checkpoint.keep_last", 3),
    ],
)
def test_key_left_out_is_set_with_and_without_plus(choice, key, value, mark):
    config = check([choice, *MODEL, f"{mark}{key}={str(value).lower()}"]).config
    group, _, name = key.partition(".")
    assert config[group][name] == value


@pytest.mark.parametrize("mark", ["", "+", "++"])
def test_key_that_is_there_is_changed_with_and_without_plus(mark):
    assert check([f"{mark}trainer.n_epochs=3"]).config["trainer"]["n_epochs"] == 3
    assert check(["data=digits", f"{mark}data.batch_size=8"]).config["data"]["batch_size"] == 8


def test_facts_left_out_are_given_as_a_whole_or_one_by_one_with_plus(problems):
    for override in ("data.info={num_features: 2}", "+data.info.num_features=2"):
        assert check(["data=bare", *MODEL, override]).config["data"]["info"] == {"num_features": 2}
    one = "data.info.num_features=2"
    assert problems("data=bare", *MODEL, one)["data.info.num_features"].hint == f"+{one}"


@pytest.mark.parametrize("mark", ["", "+", "++"])
def test_value_of_a_key_left_out_is_checked(problems, mark):
    found = problems("data=mine", *MODEL, f"{mark}data.batch_size=0")
    assert found["data.batch_size"].hint == "data.batch_size=32"
    assert set(found) == {"data.batch_size"}


def test_each_value_of_a_sweep_is_checked(problems):
    overrides = ["data=mine,digits", *MODEL]
    assert check([*overrides, "data.eval_batch_size=16,32"], multirun=True)
    for mark in ("", "+"):
        found = problems(*overrides, f"{mark}data.eval_batch_size=16,0", multirun=True)
        assert set(found) == {"data.eval_batch_size"}


def test_misspelt_key_that_is_left_out_names_the_right_one(problems):
    problem = problems("data=mine", *MODEL, "data.batch_sise=8")["data.batch_sise"]
    assert problem.hint == "data.batch_size=8"
    assert "data=mine has: batch_size, collate, drop_last" in problem.message


@pytest.mark.parametrize("mark", ["", "+"])
def test_what_another_store_of_expkit_lacks_stays_refused(problems, mark):
    found = problems("checkpoint=none", f"{mark}checkpoint.keep_last=3")
    assert found["checkpoint.keep_last"].hint == "checkpoint=default"


@pytest.mark.parametrize(
    ("driver", "key", "hint"),
    [
        ("torch", "timeout_s=20", "torch_ddp"),
        ("torch", "shard=auto", "torch_fsdp"),
        ("torch_fsdp", "gradient_sync=flat", "torch_ddp"),
        ("paddle", "timeout_s=20", "paddle_fleet"),
        ("paddle_fleet", "shard=auto", "torch_fsdp"),
    ],
)
def test_key_of_another_driver_names_one_of_the_same_framework_first(problems, driver, key, hint):
    (problem,) = problems(f"driver={driver}", f"driver.{key}").values()
    assert problem.hint == f"driver={hint}"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("data.batch_size=8", "++data.batch_size=8"),
        ("+data.batch_size=8,16", "++data.batch_size=8,16"),
        ("++trainer.n_epochs=1", "++trainer.n_epochs=1"),
        ("data.batch_sise=8", "data.batch_sise=8"),
        ("driver.timeout_s=8", "driver.timeout_s=8"),
        ("~trainer.n_epochs", "~trainer.n_epochs"),
        ("+experiment=x", "experiment=x"),
        ("+callbacks=x", "+callbacks=x"),
        ("seed=1", "seed=1"),
    ],
)
def test_hydra_is_told_to_add_only_what_a_file_may_leave_out(text, wanted):
    assert for_hydra(text) == wanted
