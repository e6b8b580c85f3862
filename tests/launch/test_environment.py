from __future__ import annotations

import pytest

from expkit.core.errors import ConfigError
from expkit.launch.environment import (
    Place,
    find_place,
    first_host,
    paddle_variables,
    torch_variables,
)

SLURM = {
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    "SLURM_STEP_NODELIST": "gpu-[003-004]",
    "SLURM_JOB_ID": "71234",
}


def test_without_a_launcher_there_is_no_place():
    assert find_place({}) is None
    assert find_place({"RANK": "1"}) is None


@pytest.mark.parametrize("launcher", ["torchrun", "expkit"])
def test_a_place_survives_torchs_variables(launcher):
    place = Place(launcher, 3, 4, 1, 2, "10.0.0.1", 29500, attempt=2)
    variables = torch_variables(place)
    if launcher == "expkit":
        variables["EXPKIT_CONTROL_FD"] = "5"
    assert find_place(variables) == place


def test_torchruns_restarts_are_attempts():
    variables = torch_variables(Place("torchrun", 0, 2, 0, 2, "h", 1)) | {
        "TORCHELASTIC_RESTART_COUNT": "1"
    }
    del variables["EXPKIT_ATTEMPT"]
    assert find_place(variables).attempt == 1


@pytest.mark.parametrize("launcher", ["paddle", "expkit"])
def test_a_place_survives_paddles_variables(launcher):
    place = Place(launcher, 1, 2, 1, 2, "10.0.0.1", 6170)
    variables = paddle_variables(place, ["10.0.0.1:6170", "10.0.0.1:6171"])
    if launcher == "expkit":
        variables["EXPKIT_CONTROL_FD"] = "5"
    assert find_place(variables) == place


def test_tasks_of_a_slurm_step_are_ranks():
    place = find_place(SLURM)
    assert (place.launcher, place.rank, place.world_size) == ("slurm", 3, 4)
    assert (place.local_rank, place.local_world_size, place.address) == (1, 2, "gpu-003")
    assert place.port == find_place(SLURM | {"SLURM_PROCID": "0"}).port
    assert place.port != find_place(SLURM | {"SLURM_STEP_ID": "1"}).port
    assert find_place(SLURM | {"MASTER_ADDR": "h", "MASTER_PORT": "7"}).port == 7


def test_tasks_on_this_node_are_counted_by_its_place_in_the_list():
    uneven = SLURM | {"SLURM_STEP_TASKS_PER_NODE": "3,1", "SLURM_NODEID": "1"}
    assert find_place(uneven).local_world_size == 1
    assert find_place(uneven | {"SLURM_NODEID": "0"}).local_world_size == 3


def test_a_batch_script_of_slurm_is_no_rank():
    script = {key: SLURM[key] for key in ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_JOB_ID")}
    assert find_place(script) is None
    assert find_place(SLURM | {"SLURM_STEP_NUM_TASKS": "1"}) is None


def test_variables_that_contradict_each_other_are_refused():
    with pytest.raises(ConfigError, match="launcher's variables are incomplete"):
        find_place({"RANK": "1", "WORLD_SIZE": "2"})
    with pytest.raises(ConfigError, match="launcher's variables are incomplete"):
        find_place({"RANK": "one", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "1"})


@pytest.mark.parametrize(
    ("nodes", "host"),
    [
        ("gpu-[003-007,9],cpu1", "gpu-003"),
        ("localhost", "localhost"),
        ("a1,a2", "a1"),
        ("n[7,9]", "n7"),
        ("rack1-[01-02]-ib", "rack1-01-ib"),
    ],
)
def test_first_host_of_slurms_short_form(nodes, host):
    assert first_host(nodes) == host
