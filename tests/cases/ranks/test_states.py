"""Themes 1, 2, 6 and 17 on ranks: checkpoints, resumed runs, several runs in one process."""

from __future__ import annotations

import pytest

from tests.cases.parts import samples

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("step", [7, 10])
@pytest.mark.parametrize("sync", ["flat", "native"])
def test_a_resumed_run_draws_what_the_straight_run_draws(two, tmp_path, sync, step):
    """Case 13: dropout, and noise of all generators in the data."""
    steps, straight, resumed = two.agree(
        "states.straight_and_resumed", root=str(tmp_path), sync=sync, step=step
    )
    assert steps == 15
    assert resumed == straight


def test_rank_0_writes_and_a_checkpoint_has_the_generators_of_all(two, tmp_path):
    found = two.agree("states.written", root=str(tmp_path))
    assert found["writers"] == ["by-0"]
    assert {"rank-0000.json", "rank-0001.json", "model.safetensors"} <= set(found["files"])
    assert found["listed"] == [name for name in found["files"] if name != "MANIFEST.json"]
    assert found["generators"] == 2


# -- other numbers of ranks ------------------------------------------------------------------------


def steps_of(results):
    """Step -> the samples of all ranks, in the order in which the sampler gives them."""
    steps: dict[int, tuple[int, list[list[int]]]] = {}
    for rank, rows in enumerate(results):
        for epoch, step, indices in rows:
            steps.setdefault(step, (epoch, [[] for _ in results]))[1][rank].extend(indices)
    return {step: (epoch, _woven(shares)) for step, (epoch, shares) in steps.items()}


def _woven(shares):
    shares = [share for share in shares if share]
    return [share[i] for i in range(max(map(len, shares))) for share in shares if i < len(share)]


def check(parts, straight):
    """The parts of a run together have its steps, each once, with the same samples in order."""
    together = [item for part in parts for item in steps_of(part).items()]
    assert [step for step, _ in together] == [1, 2, 3, 4, 5, 6]
    assert dict(together) == straight
    for epoch in (0, 1):
        seen = [index for of, indices in straight.values() if of == epoch for index in indices]
        assert sorted(seen) == sorted(samples(36)["index"].tolist())


def test_two_ranks_one_and_two_again_train_each_sample_once_in_order(two, tmp_path):
    """The second part is trained on one device, by the plain driver."""
    straight = steps_of(two.run("states.part_of_a_run", root=str(tmp_path / "straight")))
    run = {"function": "states.part_of_a_run", "root": str(tmp_path / "run")}
    parts = [
        two.run(until=2, **run),
        two.run(until=4, resume=True, alone=True, **run),
        two.run(resume=True, **run),
    ]
    check([parts[0], parts[1][:1], parts[2]], straight)


def test_a_run_of_two_ranks_goes_on_with_three(two, three, tmp_path):
    straight = steps_of(two.run("states.part_of_a_run", root=str(tmp_path / "straight")))
    run = {"function": "states.part_of_a_run", "root": str(tmp_path / "run")}
    check([two.run(until=2, **run), three.run(resume=True, **run)], straight)


def test_where_steps_depend_on_the_ranks_no_sample_is_lost_without_a_word(two, three, tmp_path):
    run = {"root": str(tmp_path)}
    two.run("states.part_of_a_run", until=2, batch_size=6, **run)
    error = three.agree("states.refused_part", **run)
    assert error.startswith("ConfigError: resume: ")
    assert "samples per step 18 (was 12)" in error


# -- the weights that stay -------------------------------------------------------------------------


@pytest.mark.parametrize("keep", ["disk", "memory"])
def test_the_weights_of_the_best_evaluation_stay_on_all_ranks(two, tmp_path, keep):
    root = str(tmp_path) if keep == "disk" else None
    best, left, seen, _ = two.agree("states.best_weights", root=root, values=[0.1, 0.7, 0.3, 0.2])
    assert best == 2
    assert left == seen["2"]
    assert left != seen["4"]


# -- several runs in one process -------------------------------------------------------------------


def test_optimizers_are_resumed_whatever_was_built_before_in_the_process(two, tmp_path):
    """Case 123."""
    results = two.run("states.interleaved_runs", root=str(tmp_path))
    for straight, resumed, _ in results:
        assert resumed == straight == results[0][0]
    assert results[0][2] == [
        "layers.linear_0.bias",
        "layers.linear_0.weight",
        "layers.output.bias",
        "layers.output.weight",
    ]


def test_a_process_joins_once_for_all_its_runs(two):
    """Case 127."""
    calls, loss, first, second = two.agree("states.repeated")
    assert calls == 0  # it had joined before
    assert loss > 0
    assert first == second
    assert (first["status"], first["steps"]) == ("completed", 15)
