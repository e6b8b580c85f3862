import sys

import pytest

from expkit.config.targets import check_call, check_targets, locate
from expkit.config.validation import check
from expkit.core.errors import ConfigError

MODULE = """\
import os
import subprocess
import pathlib
import numpy as np
from expkit.run.atomic import write_atomically
from pickle import loads

class Net:
    def __init__(self, width, depth=2):
        self.width = width

    @classmethod
    def small(cls):
        return cls(1)

def make(n, **options):
    return n

number = 3
"""


@pytest.fixture(autouse=True)
def module(write):
    yield write("users_module.py", MODULE)
    for name in [name for name in sys.modules if name.startswith("users_")]:
        del sys.modules[name]


def refusal(target):
    with pytest.raises(ConfigError) as caught:
        locate(target, "model", "conf/model/mine.yaml")
    (problem,) = caught.value.problems
    assert problem.key == "model._target_ (conf/model/mine.yaml)"
    return problem.message


@pytest.mark.parametrize(
    "target",
    [
        "users_module.Net",
        "users_module.Net.small",
        "users_module.make",
        "expkit.core.trainer.Trainer",
        "expkit.core.store.MemoryStore",
    ],
)
def test_parts_of_expkit_and_the_users_own_code_are_found(target):
    assert callable(locate(target, "model"))


@pytest.mark.parametrize(
    "target",
    [
        "os.system",
        "posix.system",
        "builtins.eval",
        "builtins.open",
        "subprocess.run",
        "socket.socket",
        "shutil.copyfile",
        "pathlib.Path.write_text",
        "pickle.loads",
        "importlib.import_module",
        "functools.partial",
        "numpy.load",
        "numpy.testing.runstring",
        "torch.load",
        "torch.hub.load",
        "torch.nn._reduction.warnings",
        "torch.utils.data._utils.worker.os.mkdir",
        "paddle.load",
        "paddle.utils.run_check",
        "hydra.utils.instantiate",
        "yaml.unsafe_load",
        "pip.main",
        "expkit.run.atomic.write_atomically",
        "expkit.app.run_command",
        "expkit.project.init",
        "users_module.__builtins__.eval",
        "users_module.Net.__init__",
        "users_module",
        "users_module.",
        "..",
        "",
        "a b.c",
    ],
)
def test_dangerous_targets_are_refused_before_anything_is_imported(target):
    before = set(sys.modules)
    refusal(target)
    assert set(sys.modules) - before == set()


@pytest.mark.parametrize(
    ("target", "home"),
    [
        ("users_module.os.system", "posix.system"),
        ("users_module.subprocess.Popen", "subprocess.Popen"),
        ("users_module.pathlib.Path", "pathlib.Path"),
        ("users_module.loads", "_pickle.loads"),
        ("users_module.np.load", "numpy.load"),
        ("users_module.write_atomically", "expkit.run.atomic.write_atomically"),
        ("expkit.core.trainer.logging.os.system", "posix.system"),
        ("expkit.core.trainer.Path", "pathlib.Path"),
    ],
)
def test_what_a_name_really_is_decides(target, home):
    assert f"{target} is {home}, which may not be a target" in refusal(target)


@pytest.mark.parametrize("module", ["torch.utils.data", "torch.utils.data.sampler"])
@pytest.mark.parametrize("name", ["WeightedRandomSampler", "RandomSampler", "BatchSampler"])
def test_samplers_of_torch_go_by_both_their_names(module, name):
    sampler = pytest.importorskip("torch.utils.data.sampler")
    assert locate(f"{module}.{name}", "sampler") is getattr(sampler, name)


@pytest.mark.parametrize(
    ("name", "home"),
    [
        ("DataLoader", "torch.utils.data.dataloader.DataLoader"),
        ("random_split", "torch.utils.data.dataset.random_split"),
        ("TensorDataset", "torch.utils.data.dataset.TensorDataset"),
    ],
)
def test_nothing_else_of_torchs_data_may_be_a_target(name, home):
    pytest.importorskip("torch.utils.data")
    assert f"is {home}, which may not be a target" in refusal(f"torch.utils.data.{name}")


def test_error_inside_an_imported_module_is_shown(write):
    write("users_broken.py", "import nowhere_to_be_found\n")
    assert "users_broken can't be imported: ModuleNotFoundError: No module named" in refusal(
        "users_broken.Net"
    )
    write("users_syntax.py", "def f(:\n")
    assert "users_syntax can't be imported: SyntaxError" in refusal("users_syntax.Net")


def test_missing_name_or_module_names_the_nearest():
    assert refusal("users_module.Nett").endswith("did you mean users_module.Net?")
    assert "did you mean torch.optim.Adam?" in refusal("torch.optm.Adam")
    assert "there is no module 'users_modul'" in refusal("users_modul.Net")


def test_what_is_no_function_is_refused():
    assert refusal("users_module.number") == "users_module.number is 3, which can't be called"


def test_arguments_are_checked_against_the_signature():
    net = locate("users_module.Net", "model")
    with pytest.raises(ConfigError) as caught:
        check_call(net, {"_target_": "x", "widht": 1, "y": 2}, "model")
    first, second = caught.value.problems
    assert first.key == "model.widht"
    assert "did you mean width?" in first.message
    assert second.key == "model.y"
    with pytest.raises(ConfigError, match="missing a required argument: 'width'"):
        check_call(net, {"depth": 1}, "model")
    check_call(net, {"depth": 1}, "model", supplied=["width", "not_taken"])
    check_call(net, {"depth": 1, "_partial_": True}, "model")
    check_call(net, {"_args_": [3]}, "model")
    check_call(locate("users_module.make", "x"), {"n": 1, "anything": 2}, "model")


def test_all_targets_of_a_config_are_checked_at_once():
    config = {
        "model": {"_target_": "users_module.Net", "width": 1},
        "callbacks": {
            "a": {"_target_": "os.system"},
            "b": {"f": [{"_target_": "users_module.No"}]},
        },
        "driver": {"_target_": "users_module.Net", "framework": "torch", "width": 1},
        "logger": {"x": {"_target_": "users_module.Net"}},
    }
    with pytest.raises(ConfigError) as caught:
        check_targets(
            config, supplied={"logger": ["width"]}, consumed={"driver": ["framework"]}, files={}
        )
    keys = [problem.key for problem in caught.value.problems]
    assert keys == ["callbacks.a._target_", "callbacks.b.f.0._target_"]


@pytest.mark.slow
def test_framework_classes_are_found_and_their_functions_refused():
    pytest.importorskip("torch")
    locate("torch.nn.Linear", "model")
    locate("torch.optim.lr_scheduler.StepLR", "schedule")
    assert "may not be a target" in refusal("torch.nn.functional.relu")
    assert "may not be a target" in refusal("torch.nn.Embedding.from_pretrained")
    assert "may not be a target" in refusal("torch.nn.modules.module.torch.load")
    assert refusal("torch.optim.Adm").endswith("did you mean torch.optim.Adam?")


def shipped(driver, model, *overrides):
    from expkit.builder import CONSUMED, SUPPLIED

    config = check([f"driver={driver}", f"model={model}", *overrides]).config
    check_targets(config, supplied=SUPPLIED, consumed=CONSUMED)


EVERY_PART = [
    [
        "callbacks=[progress,early_stop,clip_value,ema,lr_monitor,throughput,timer,nan_guard]",
        "+callbacks=[model_summary,device_memory]",
        "logger=[tensorboard,csv]",
        "metrics=[classification,regression,language_model]",
        "optimizer=sgd",
    ],
    ["optimizer=adamw", "schedule=linear", "sampler=sorted", "loss=mse", "checkpoint=none"],
    ["schedule=plateau", "sampler=sequential", "loss=huber", "data=diabetes"],
    ["schedule=one_cycle", "loss=binary_cross_entropy", "data=reuters", "model.in_features=1"],
]


@pytest.mark.parametrize("overrides", EVERY_PART)
def test_every_shipped_part_passes_with_its_keys(overrides):
    shipped("numpy", "mlp", *overrides)


def test_model_without_a_numpy_version_says_so():
    with pytest.raises(ConfigError, match="NumPy"):
        shipped("numpy", "cnn")


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["torch", "paddle"])
def test_every_shipped_model_and_driver_passes_with_its_keys(driver):
    pytest.importorskip(driver)
    shipped(driver, "mlp")
    shipped(driver, "cnn")
    shipped(driver, "text_cnn", "data=reuters")
    shipped(driver, "transformer", "data=shakespeare")
