import subprocess
import sys
import time

import pytest

from expkit import app
from expkit.config import overrides
from expkit.config.validation import check
from expkit.core.errors import ConfigError


def test_no_arguments_give_a_config_with_every_group():
    composition = check([])
    config = composition.config
    assert config["name"] == "digits"
    assert config["model"]["_target_"] == "expkit.models.torch.Mlp"
    assert config["model"]["in_features"] == 64
    assert config["trainer"]["n_epochs"] == "auto"  # 20, see tests/core/test_limits.py
    assert composition.choices["driver"] == "torch"
    assert composition.files["model"].endswith("model/mlp.yaml")
    assert composition.notes == ()
    assert "hydra" not in config


def test_groups_are_swapped_and_leaves_overridden():
    overrides = [
        "driver=paddle",
        "model=cnn",
        "model.channels=[8,16]",
        "trainer.n_epochs=5",
        "trainer.max_steps=null",
        "trainer.max_time=1h30m",
        'output_dir="a dir/with = sign"',
        "tags=['größe','β']",
        "optimizer.lr=1e-2",
    ]
    config = check(overrides).config
    assert config["model"]["_target_"] == "expkit.models.paddle.Cnn"
    assert config["model"]["channels"] == [8, 16]
    assert config["trainer"]["n_epochs"] == 5
    assert config["trainer"]["max_steps"] is None
    assert config["trainer"]["max_time"] == 5400.0
    assert config["output_dir"] == "a dir/with = sign"
    assert config["tags"] == ["größe", "β"]
    assert config["optimizer"]["lr"] == 0.01


def test_overrides_are_kept_as_given_and_hydras_own_are_told_apart():
    composition = check(["seed=3", "hydra.run.dir=/tmp/exact"])
    assert composition.overrides == ("seed=3", "hydra.run.dir=/tmp/exact")
    assert composition.hydra == {"run.dir": "/tmp/exact"}


@pytest.mark.parametrize("name", ["diabetes", "digits_cnn", "reuters", "shakespeare"])
def test_every_experiment_composes_and_names_its_run(name):
    assert check([f"experiment={name}"]).config["name"] == name


@pytest.mark.parametrize(("name", "n_epochs"), [("fast", 1), ("overfit", 100), ("profile", 2)])
def test_debug_preset_stands_before_the_experiment(name, n_epochs):
    config = check([f"debug={name}", "experiment=digits_cnn"]).config
    assert config["trainer"]["n_epochs"] == n_epochs
    assert config["name"] == "digits_cnn"


def test_plus_before_a_group_of_the_defaults_list_changes_nothing():
    assert check(["+experiment=digits_cnn", "debug=null"]).config["name"] == "digits_cnn"


def test_plus_adds_to_a_list_of_callbacks():
    assert set(check(["+callbacks=early_stop"]).config["callbacks"]) == {"progress", "early_stop"}


def test_removed_groups_are_empty():
    config = check(["~schedule", "callbacks=none", "logger=none"]).config
    assert config["schedule"] == config["callbacks"] == config["logger"] == {}


def test_misspelt_key_names_the_nearest(problems):
    problem = problems("trainer.n_epoch=3")["trainer.n_epoch"]
    assert problem.hint == "trainer.n_epochs=3"
    assert "n_epochs" in problem.message
    assert "\n" not in str(problem)


MENDED = [
    ("n_epochs=3", "trainer.n_epochs=3"),
    ("trainer.save_every=3", "checkpoint.save_every=3"),
    ("lr=0.1", "optimizer.lr=0.1"),
    ("model.hiden=[3]", "model.hidden=[3]"),
    ("callbacks.progress.stile=bar", "callbacks.progress.style=bar"),
    ("+driver.precision=fp16", "driver.precision=fp16"),
    ("+trainer.n_epoch=3", "trainer.n_epochs=3"),
    ("~trainer.n_epochs", "trainer.n_epochs=..."),
    ("~seed", "seed=..."),
    ("+sed=3", "seed=3"),
    ("task=validate", "task=train"),
    ("trainer.n_epochs=None", "trainer.n_epochs=null"),
    ("trainer.n_epochs=five", "trainer.n_epochs=auto"),
    ("trainer.n_epochs=2.5", "trainer.n_epochs=auto"),
    ("trainer.n_epochs=2.0", "trainer.n_epochs=2"),
    ("trainer.n_epochs=true", "trainer.n_epochs=auto"),
    ("trainer.load_best=yes", "trainer.load_best=true"),
    ("trainer.eval_every=0", "trainer.eval_every=1ep"),
    ("trainer.accumulate=0", "trainer.accumulate=1"),
    ("data.batch_size=1000000000000", "data.batch_size=32"),
    ("data.batch_size=-1", "data.batch_size=32"),
    ("driver.precision=fp8", "driver.precision=fp32"),
    ("seed=-1", "seed=0"),
    ("resume=None", "resume=null"),
    ("name=../../x", "name=null"),
    ("name=a/b", "name=null"),
    (f"name={'x' * 300}", "name=null"),
    ('name="a\nb"', "name=null"),
    ('name="a=b"', "name=null"),
    ("model=cnnn", "model=cnn"),
    ("callbacks=[progress,earlystop]", "callbacks=[progress,early_stop]"),
    ("data.source.split_seed=a=b", "'data.source.split_seed=\"a=b\"'"),
]


def packed(overrides):
    """The overrides in as few groups as may be checked together: one of each key in a group."""
    groups = []
    for override in overrides:
        key = override.partition("=")[0].strip("+~")
        group = next((group for group in groups if key not in group), None)
        if group is None:
            groups.append(group := {})
        group[key] = override
    return [list(group.values()) for group in groups]


@pytest.mark.parametrize("overrides", packed(override for override, _ in MENDED))
def test_wrong_overrides_are_refused_each_with_one_that_mends_it(problems, overrides):
    hints = dict(MENDED)
    found = problems(*overrides)
    assert sorted(problem.hint for problem in found.values()) == sorted(
        hints[override] for override in overrides
    )


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("monitor=acuracy", "monitor=accuracy"),
        ("monitor=loss", "monitor=-loss"),
        ("monitor=--loss", "monitor=-loss"),
    ],
)
def test_wrong_monitor_is_refused_with_one_that_works(problems, override, hint):
    assert problems(override)["monitor"].hint == hint


NONSENSE = [
    ("optimizer.lr=nan", "optimizer.lr"),
    ("optimizer.lr=inf", "optimizer.lr"),
    ("optimizer.lr=-1", "optimizer.lr"),
    ("model.dropout=1.0", "model.dropout"),
    ("model.hidden=[0]", "model.hidden"),
    ("model=../../x", "model"),
    ("model=null", "model"),
    ("model=[mlp,cnn]", "model"),
    ("model.hidden.x=3", "model.hidden.x"),
    ("seed=${seed}", "seed"),
    ("model.activation=${nowhere.x}", "model.activation"),
    ("trainer=null", "trainer"),
    ("~trainer.n_epoch", "trainer.n_epoch"),
    ("tags=[größe]", "tags"),
    ("nonsense", "nonsense"),
    ("=3", "'=3'"),
    ("a[=3", "a["),
    ("hydra.searchpath=[x]", "hydra.searchpath"),
    ("callbacks=[progress,on_best]", "callbacks.on_best.function._target_"),
]


@pytest.mark.parametrize("overrides", packed(override for override, _ in NONSENSE))
def test_nonsense_is_refused_by_its_key(problems, overrides):
    keys = dict(NONSENSE)
    assert {keys[override] for override in overrides} <= set(problems(*overrides))


@pytest.mark.parametrize(
    ("override", "key"), [("~driver", "model._target_"), ("~optimizer", "optimizer")]
)
def test_needed_group_can_not_be_removed(problems, override, key):
    assert key in problems(override)


def test_all_problems_are_told_at_once(problems):
    found = problems(
        "trainer.n_epoch=3",
        "model=cnnn",
        "trainer.clip_norm=None",
        "a=b=c",
        "data.batch_size=0",
        "+trainer.x=1",
        "driver.precision=fp8",
    )
    assert set(found) == {
        "trainer.n_epoch",
        "model",
        "trainer.clip_norm",
        "a",
        "data.batch_size",
        "trainer.x",
        "driver.precision",
    }


def test_missing_fact_about_the_data_names_both_options(problems):
    problem = problems("model=text_cnn")["model.vocab_size"]
    assert "model=text_cnn needs data.info.vocab_size, which data=digits lacks" in problem.message
    assert problem.hint == "data=reuters"


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (["trainer.n_epochs=null"], "trainer"),
        (["data.batch_size=8", "data.global_batch_size=16"], "data.batch_size"),
        (["data.global_batch_size=2", "trainer.accumulate=4"], "data.global_batch_size"),
        (["resume=latest", "init_from=x"], "init_from"),
        (["task=evaluate"], "init_from"),
        (["task=evaluate", "init_from=x", "optimizer.lr=1"], "optimizer.lr"),
        (["driver=numpy", "driver.precision=bf16"], "driver.precision"),
        (["driver=numpy", "driver.device=cuda"], "driver.device"),
        (["driver=numpy", "driver.compile=true"], "driver.compile"),
        (["driver=paddle", "driver.device=cpu", "driver.precision=bf16"], "driver.precision"),
        (["data.num_workers=-1"], "data.num_workers"),
        (["data.num_workers=2", "data.prefetch=0"], "data.prefetch"),
        (["data.prefetch=4"], "data.prefetch"),
        (["driver.loss_scale=2"], "driver.loss_scale"),
        (["metrics=none"], "monitor"),
        (
            ["trainer.overfit_batches=2", "trainer.limit_eval_batches=1"],
            "trainer.limit_eval_batches",
        ),
        (["monitor=null", "trainer.load_best=true"], "trainer.load_best"),
        (["driver.device=[0]"], "driver.device"),
        (["driver.device=-1"], "driver.device"),
        (["driver=torch_ddp", "trainer.on_exception=ignore"], "trainer.on_exception"),
        (["driver=torch_ddp", "driver.device=cpu", "driver.backend=nccl"], "driver.backend"),
        (
            [
                "driver=torch_ddp",
                "driver.gradient_sync=flat",
                "+driver.data_parallel.bucket_cap_mb=5",
            ],
            "driver.data_parallel",
        ),
        (
            [
                "driver=paddle_fleet",
                "driver.gradient_sync=native",
                "driver.find_unused_parameters=true",
                "trainer.accumulate=2",
            ],
            "driver.find_unused_parameters",
        ),
        (["driver=torch_fsdp", "driver.precision=fp16"], "driver.precision"),
        (
            ["driver=paddle_fleet", "driver.fleet.is_collective=false"],
            "driver.fleet.is_collective",
        ),
        (
            ["driver=paddle_fleet", "+driver.fleet.strategy.amp=true"],
            "driver.fleet.strategy.amp",
        ),
        (["driver=torch", "driver.num_processes=2"], "driver.num_processes"),
        (["checkpoint=none", "checkpoint.keep_last=3"], "checkpoint.keep_last"),
    ],
)
def test_combinations_that_cannot_work_or_have_no_effect_are_refused(problems, overrides, key):
    assert set(problems(*overrides)) == {key}


@pytest.mark.parametrize("number", [-1, 0])
def test_no_checkpoint_at_all_is_no_number_to_keep(problems, number):
    problem = problems(f"checkpoint.keep_last={number}")["checkpoint.keep_last"]
    assert "at least 1" in problem.message


def test_reading_ahead_without_workers_is_refused_with_the_way_to_have_some(problems):
    problem = problems("data.prefetch=4")["data.prefetch"]
    assert problem.message == "has no effect with data.num_workers=0: the training process reads"
    assert problem.hint == "data.num_workers=2"
    assert check(["data.prefetch=4", "data.num_workers=2"]).config["data"]["prefetch"] == 4


def test_model_without_a_numpy_version_is_refused_with_both_ways_out(problems):
    problem = problems("driver=numpy", "model=cnn")["model"]
    assert "allowed: mlp (or driver=torch" in problem.message
    assert problem.hint == "model=mlp"
    assert check(["driver=numpy"]).config["model"]["_target_"] == "expkit.models.numpy.Mlp"


def test_precision_on_a_device_that_is_found_later_is_left_to_the_driver():
    overrides = ["driver=paddle", "driver.precision=bf16"]
    assert check(overrides).config["driver"]["device"] == "auto"
    assert check([*overrides, "driver.device=gpu"]).config["driver"]["precision"] == "bf16"


def test_without_a_monitored_metric_nothing_is_demanded_of_the_metrics():
    assert check(["metrics=none", "monitor=null"]).config["metrics"] == {}
    assert check(["metrics=none", "monitor=-dev/loss"]).config["monitor"] == "-dev/loss"


def test_sweep_needs_the_flag(problems):
    assert problems("seed=1,2")["seed"].hint == "seed=[1,2]"
    assert problems("model=mlp,cnn")["model"].hint == "-m model=mlp,cnn"


def test_sweep_checks_each_value_of_each_override(problems):
    found = problems(
        "seed=0,x", "model.dropout=0.1,0.2,1.5", "optimizer.lr=interval(0.1,-1)", multirun=True
    )
    assert {key: problem.message.split(";")[0] for key, problem in found.items()} == {
        "seed": "is 'x'",
        "model.dropout": "is 1.5",
        "optimizer.lr": "is -1.0",
    }


def test_sweep_names_the_choice_that_lacks_a_key(problems):
    problem = problems("model=cnn,mlp", "model.channels=[8]", multirun=True)["model.channels"]
    assert problem.message.startswith("no such key; model=mlp has:")


def test_sweep_over_lists_is_not_one_list():
    config = check(["model.hidden=[64],[64,64]", "seed=range(0,5000)"], multirun=True).config
    assert config["model"]["hidden"] == [64]
    assert config["seed"] == 0


def test_sweep_over_an_added_key_checks_each_value(problems):
    assert check(["+callbacks.progress.x=1,2"], multirun=True)
    assert "trainer.x" in problems("+trainer.x=1,2", multirun=True)


def test_sweep_of_too_many_jobs_is_refused_unexpanded(problems):
    started = time.monotonic()
    found = problems("seed=range(0,100000000)", "optimizer.lr=0.1,0.2", multirun=True)
    assert time.monotonic() - started < 10
    assert found["-m"].message.startswith(
        "makes 200,000,000 jobs (100,000,000 of seed x 2 of optimizer.lr); allowed: 10,000"
    )


def test_jobs_of_a_sweep_are_counted_exactly(problems):
    assert check(["seed=range(0,10000)"], multirun=True)
    message = problems("seed=range(0,20002,2)", multirun=True)["-m"].message
    assert message.startswith("makes 10,001 jobs")
    message = problems("optimizer.lr=range(1,2,0.00005)", "seed=1,2", multirun=True)["-m"].message
    assert message.startswith("makes 40,000 jobs")


@pytest.mark.parametrize(
    "value", ["range(0,5,0)", "range(1,inf)", f"range(0,{10**400})", "range(5,0)"]
)
def test_range_of_no_or_endless_values_is_refused(problems, value):
    assert "seed" in problems(f"seed={value}", multirun=True)


def test_users_directory_is_found_and_its_options_stand_beside_the_built_in_ones(write):
    write("conf/model/mine.yaml", "_target_: my_model.Net\nwidth: 3\n")
    write("conf/experiment/foo.yaml", "# @package _global_\nname: foo\nseed: 77\n")
    composition = check(["model=mine", "experiment=foo"])
    assert composition.config["model"] == {"_target_": "my_model.Net", "width": 3}
    assert composition.config["seed"] == 77
    assert composition.notes == ()


def test_config_dir_stands_before_the_users_directory(write, here):
    write("conf/experiment/foo.yaml", "# @package _global_\nseed: 1\n")
    write("other/experiment/foo.yaml", "# @package _global_\nseed: 77\n")
    assert check(["experiment=foo"], config_dir=str(here / "other")).config["seed"] == 77
    assert check(["experiment=foo"]).config["seed"] == 1


def test_users_option_of_the_same_name_is_used_and_said(write):
    path = write("conf/schedule/constant.yaml", "_target_: my.Own\n")
    composition = check([])
    assert composition.config["schedule"] == {"_target_": "my.Own"}
    (note,) = composition.notes
    assert str(path) in note


def test_key_that_a_users_target_may_take_is_added_by_plus(write, problems):
    write("conf/optimizer/radam.yaml", "_target_: my.RAdam\nlr: 0.1\n")
    problem = problems("optimizer=radam", "optimizer.weight_decay=0.1")["optimizer.weight_decay"]
    assert problem.hint == "+optimizer.weight_decay=0.1"
    assert check(["optimizer=radam", problem.hint]).config["optimizer"]["weight_decay"] == 0.1
    assert problems("optimizer=radam", "optimizer.lrr=1")["optimizer.lrr"].hint == "optimizer.lr=1"


def test_refused_choice_causes_no_second_problem(write, problems):
    write("conf/model/smalcnn.yaml", "_target_: my.Net\n")
    write("conf/data/shapes.yaml", "source: {_target_: my.shapes}\ninfo: {}\n")
    assert set(problems("model=smallcnn", "data=shapes")) == {"model"}
    assert set(problems("model=text_cnn", "data=shappes")) == {"data"}
    assert set(problems("model=text_cnn", "experiment=reuter")) == {"experiment"}
    assert set(problems("metrics=regresion", "monitor=-mae")) == {"metrics"}
    assert "model.in_features" in problems("data=shapes")


def test_misspelt_command_names_the_nearest(problems):
    assert problems("initt")["initt"].hint == "expkit init"
    assert problems("nonsense")["nonsense"].hint == ""
    assert tuple(app.COMMANDS) == overrides.COMMANDS


def test_untracked_overrides_are_last(write):
    write("conf/local/default.yaml", "# @package _global_\ndriver: {num_threads: 2}\nseed: 5\n")
    config = check(["experiment=digits_cnn"]).config
    assert config["driver"]["num_threads"] == 2
    assert config["seed"] == 5


def test_missing_config_dir_is_one_line_with_the_path(here):
    with pytest.raises(ConfigError) as caught:
        check([], config_dir="nowhere")
    assert str(caught.value) == f"--config-dir: no such directory: {here / 'nowhere'}"


def test_users_primary_config_is_refused(write, problems):
    path = write("conf/config.yaml", "x: 1\n")
    assert "local/default.yaml" in problems()[str(path)].message


def test_misspelt_key_in_a_users_file_is_found(write, problems):
    write("conf/experiment/foo.yaml", "# @package _global_\ntrainer: {n_epoch: 3}\nsede: 4\n")
    found = problems("experiment=foo")
    assert found["trainer.n_epoch"].hint == "trainer.n_epochs=3"
    assert found["sede"].hint == "seed=4"


def test_unknown_option_in_a_users_file_is_found(write, problems):
    path = write(
        "conf/experiment/foo.yaml", "# @package _global_\ndefaults: [{override /model: cnnn}]\n"
    )
    problem = problems("experiment=foo")["model"]
    assert "no option 'cnnn'" in problem.message
    assert f"{path}" in problem.message
    assert "allowed: bilstm_crf, cnn, mlp" in problem.message
    assert problem.hint == "model=cnn"


def test_every_unknown_option_of_a_list_in_a_users_file_is_told(write, problems):
    path = write(
        "conf/experiment/foo.yaml",
        "# @package _global_\ndefaults: [{override /metrics: [regresion, clasification]}]\n",
    )
    write(
        "conf/experiment/other.yaml",
        "# @package _global_\ndefaults: [{override /metrics: [clasification]}]\n",
    )
    problem = problems("experiment=foo")["metrics"]
    assert f"no option 'regresion', 'clasification', which the defaults list of {path} names" in (
        problem.message
    )
    assert problem.hint == "metrics=[regression,classification]"


def test_a_users_option_built_on_a_missing_one_is_named(write, problems):
    path = write("conf/model/mine.yaml", "defaults: [mlpp, _self_]\n")
    problem = problems("model=mine")["model"]
    assert str(path) in problem.message
    assert "no option 'mlpp'" in problem.message


def test_exponential_interpolations_are_refused(write, problems):
    tenfold = ", ".join(['"${{model.v{0}}}"'] * 10)
    rows = [f"  v{n + 1}: [{tenfold.format(n)}]" for n in range(11)]
    text = "\n".join(["# @package _global_", "model:", "  v0: [1]", *rows])
    write("conf/experiment/bomb.yaml", text)
    started = time.monotonic()
    assert "config" in problems("experiment=bomb")
    assert time.monotonic() - started < 10


@pytest.mark.slow
def test_refusal_comes_before_any_framework_is_imported(here):
    program = (
        "import sys\n"
        "from expkit.config.validation import check\n"
        "from expkit.core.errors import ConfigError\n"
        "try:\n    check(['trainer.n_epoch=3'])\n"
        "except ConfigError:\n"
        "    print([m for m in ('torch', 'paddle', 'sklearn') if m in sys.modules])\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=here
    )
    assert result.stdout.strip() == "[]"
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("override", "multirun", "used"),
    [
        ("hydra.job.chdir=true", False, "hydra.run.dir"),
        ("hydra.sweep.dir=x", False, "hydra.run.dir"),
        ("hydra.run.dir=x", True, "hydra.sweep.dir"),
        ("hydra.verbose=true", True, "hydra.launcher."),
    ],
)
def test_a_key_of_hydras_own_without_effect_is_refused(override, multirun, used):
    with pytest.raises(ConfigError, match="has no effect") as caught:
        check([override], multirun=multirun)
    assert used in str(caught.value)


def test_the_keys_of_hydras_own_that_are_used_are_taken():
    assert check(["hydra.run.dir=x"]).hydra == {"run.dir": "x"}
    assert check(["hydra.sweep.dir=x", "seed=0,1"], multirun=True).hydra == {"sweep.dir": "x"}
