"""Ranks that others start: torchrun, paddle.distributed.launch, Slurm; on one machine and two."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.dist.project import (
    PYTHON,
    SMALL,
    Finished,
    Project,
    checkpoints,
    config,
    info,
    losses,
    ranks_seen,
    records,
    samples,
    together,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TORCHRUN = (PYTHON, "-m", "torch.distributed.run")
FLEETRUN = (PYTHON, "-m", "paddle.distributed.launch")
MODULE = ("-m", "expkit")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# -- ways to start two ranks ---------------------------------------------------------------------


def one_process(project: Project) -> list[Finished]:
    return [project.run(SMALL, "driver=torch")]


def torchrun(project: Project) -> list[Finished]:
    command = (*TORCHRUN, "--standalone", "--nproc-per-node", "2", *MODULE)
    return [project.run(SMALL, "driver=torch_ddp", command=command)]


def fleetrun(project: Project) -> list[Finished]:
    command = (*FLEETRUN, "--nproc_per_node", "2", "--log_dir", "LOGS", PYTHON, *MODULE)
    return [project.run(SMALL, "driver=paddle_fleet", command=command)]


def torchrun_on_two_nodes(project: Project) -> list[Finished]:
    port = str(free_port())
    nodes = [
        project.start(
            SMALL,
            "driver=torch_ddp",
            command=(
                *(*TORCHRUN, "--nnodes", "2", "--node-rank", str(node), "--nproc-per-node", "1"),
                *("--master-addr", "127.0.0.1", "--master-port", port, *MODULE),
            ),
        )
        for node in range(2)
    ]
    return [project.finish(node) for node in nodes]


def fleetrun_on_two_nodes(project: Project) -> list[Finished]:
    port = free_port()
    nodes = [
        project.start(
            SMALL,
            "driver=paddle_fleet",
            command=(
                *(*FLEETRUN, "--nnodes", "2", "--rank", str(node), "--nproc_per_node", "1"),
                *("--master", f"127.0.0.1:{port}", "--log_dir", f"LOGS{node}", PYTHON, *MODULE),
            ),
        )
        for node in range(2)
    ]
    return [project.finish(node) for node in nodes]


def slurm(project: Project, driver: str = "torch_ddp") -> list[Finished]:
    """Two tasks as ``srun`` starts them; the second one has another idea of the seed."""
    tasks = [
        project.start(
            SMALL,
            f"driver={driver}",
            f"seed={7 * rank}",
            SLURM_JOB_ID=str(job_id(project)),
            SLURM_PROCID=str(rank),
            SLURM_LOCALID=str(rank),
            SLURM_STEP_NUM_TASKS="2",
            SLURM_STEP_TASKS_PER_NODE="2",
            SLURM_STEP_NODELIST="localhost",
        )
        for rank in range(2)
    ]
    return [project.finish(task) for task in tasks]


def slurm_with_paddle(project: Project) -> list[Finished]:
    return slurm(project, "paddle_fleet")


def job_id(project: Project) -> int:
    """A number whose port is hardly anybody's."""
    return int(project.marker, 16) % 10_000


WAYS = [
    torchrun,
    fleetrun,
    torchrun_on_two_nodes,
    fleetrun_on_two_nodes,
    slurm,
    slurm_with_paddle,
]


def start_in_every_way(directory: Path) -> dict[str, tuple[Project, list[Finished]]]:
    """The same run, started by each launcher and by none."""

    def run(way):
        project = Project.make(directory / way.__name__)
        return project, way(project)

    return together({way.__name__: lambda way=way: run(way) for way in [one_process, *WAYS]})


@pytest.fixture(scope="module")
def ways(once):
    pytest.importorskip("torch")
    pytest.importorskip("paddle")
    return once(start_in_every_way)


def text_of(project: Project, finished: list[Finished]) -> str:
    logs = [file.read_text() for file in project.path.glob("LOGS*/workerlog.*")]
    return "\n".join([*(each.text for each in finished), *logs])


@pytest.mark.parametrize("way", [way.__name__ for way in WAYS])
def test_two_ranks_are_one_run_with_the_metrics_of_one_process(ways, way):
    single = ways["one_process"][0].run_directory()
    project, finished = ways[way]
    assert [each.code for each in finished] == [0] * len(finished), text_of(project, finished)
    run = project.run_directory()  # there is one
    told = info(run)
    assert (told["status"], told["world_size"]) == ("completed", 2)
    assert samples(run) == samples(single)
    assert losses(run) == pytest.approx(losses(single), rel=1e-5)
    one, other = records(run, "eval"), records(single, "eval")
    assert [(each.step, each.metrics["accuracy"]) for each in one] == [
        (each.step, each.metrics["accuracy"]) for each in other
    ]
    assert checkpoints(run) == checkpoints(single)
    assert project.processes == []


@pytest.mark.parametrize("way", [way.__name__ for way in WAYS])
def test_no_rank_starts_ranks_of_its_own(ways, way):
    run = ways[way][0].run_directory()
    both = ranks_seen(run)
    assert [each["world_size"] for each in both] == [2, 2]
    for each in both:
        assert "expkit" in each["command"]
        assert "expkit.rank" not in each["command"]
    assert sorted(path.name for path in (run / "logs").iterdir()) == ["rank1.log"]


@pytest.mark.parametrize("way", ["slurm", "slurm_with_paddle"])
def test_the_config_of_rank_0_holds_for_all(ways, way):
    run = ways[way][0].run_directory()
    assert config(run)["seed"] == info(run)["seed"] == 0
    assert [each["note"] for each in ranks_seen(run)] == [0, 0]


def test_ranks_of_torch_on_one_machine_listen_on_loopback_alone(ways):
    for way in ("torchrun", "slurm"):
        for each in ranks_seen(ways[way][0].run_directory()):
            assert all(address.startswith("0100007F:") for address in each["listening"])


# -- failures and refusals -----------------------------------------------------------------------


def test_the_failure_of_a_rank_is_told_with_its_number(project):
    pytest.importorskip("torch")
    command = (*TORCHRUN, "--standalone", "--nproc-per-node", "2", *MODULE)
    failed = project.run(SMALL, "driver=torch_ddp", "callbacks.probe.what=raise", command=command)
    assert failed.code != 0
    assert failed.err.count('raise ValueError("bad sample 7")') == 1
    assert "rank 1: ERROR: Traceback (most recent call last)" in failed.err
    run = project.run_directory()
    assert 'raise ValueError("bad sample 7")' in (run / "logs" / "rank1.log").read_text()
    assert info(run)["status"] == "failed"


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["-m", "driver=torch_ddp", "seed=0,1"], "--multirun: needs fresh ranks for each job"),
        (["driver=torch"], "(try: driver=torch_ddp)"),
        (["driver=paddle"], "(try: driver=paddle_fleet)"),
        (["driver=numpy"], "driver: driver=numpy runs in one process"),
        (["driver=torch_ddp", "driver.num_processes=4"], "driver.num_processes: has no effect"),
        (["driver=torch_ddp", "driver.max_restarts=1"], "driver.max_restarts: has no effect"),
    ],
)
def test_what_a_launcher_cannot_do_is_refused(project, args, told):
    refused = project.run(
        SMALL,
        *args,
        RANK="1",
        WORLD_SIZE="2",
        LOCAL_RANK="1",
        LOCAL_WORLD_SIZE="2",
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT="1",
    )
    assert refused.code == 2, refused.text
    assert told in refused.err
    assert "torchrun" in refused.err
    assert not (project.path / "outputs").exists()
