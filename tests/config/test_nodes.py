import pytest

from expkit.config.validation import check


@pytest.mark.parametrize("key", ["model", "optimizer", "sampler", "data.source", "loss"])
def test_part_without_a_target_is_refused_by_its_key(problems, key):
    found = problems(f"~{key}._target_")
    assert set(found) == {key}
    assert found[key].message.startswith("has no _target_")
    assert found[key].hint == f"+{key}._target_=my_module.MyClass"


@pytest.mark.parametrize("group", ["driver", "checkpoint", "trainer", "model"])
def test_users_option_without_a_target_is_named(write, problems, group):
    write(f"conf/{group}/mine.yaml", "framework: torch\n" if group == "driver" else "x: 1\n")
    found = problems(f"{group}=mine")
    assert f"the file of {group}=mine must name one" in found[group].message


def test_data_without_a_source_is_refused(write, problems):
    write("conf/data/mine.yaml", "info: {num_features: 2, num_outputs: 2}\n")
    assert "has no _target_" in problems("data=mine")["data.source"].message


@pytest.mark.parametrize("group", ["callbacks", "metrics", "logger"])
def test_list_file_without_a_name_around_its_keys_is_told_so(write, problems, group):
    write(f"conf/{group}/flat.yaml", "_target_: my.Part\nx: 1\n")
    for choice in ("flat", "[none,flat]"):
        found = problems(f"{group}={choice}")
        assert f"the file of {group}=flat needs a name around its keys" in found[group].message


def test_entry_of_a_list_must_be_a_mapping_with_a_target(problems):
    found = problems("+callbacks.x=3", "+metrics.y.z=1", "logger.tensorboard=null")
    assert found["callbacks.x"].message == "is 3; allowed: a mapping with a _target_"
    assert found["metrics.y"].message.startswith("has no _target_")
    assert found["logger.tensorboard"].hint == "~logger.tensorboard"


def test_callback_is_switched_off_by_null():
    assert check(["callbacks.progress=null"]).config["callbacks"] == {"progress": None}


def test_several_optimizers_each_need_a_target(write, problems):
    write("conf/optimizer/two.yaml", "a: {_target_: my.A, lr: 0.1}\nb: {_target_: my.B, lr: 0.1}\n")
    assert set(check(["optimizer=two"]).config["optimizer"]) == {"a", "b"}
    assert set(problems("optimizer=two", "~optimizer.b._target_")) == {"optimizer.b"}


def test_target_without_a_value_is_one_problem(problems):
    assert list(problems("callbacks=on_best")) == ["callbacks.on_best.function._target_"]
