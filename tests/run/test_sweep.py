from __future__ import annotations

import json
import math

import pytest

from expkit.core.errors import RunDirectoryError
from expkit.run.sweep import COLUMNS, SweepJob, SweepRecord, table


def job(directory, number, objective=None, status="completed", error=None):
    return SweepJob(
        job=number,
        overrides=(f"x={number}", "model.layers=[64,64]"),
        status=status,
        objective=objective,
        directory=directory / f"{number:03d}-x",
        seconds=1.25,
        error=error,
    )


def test_jobs_come_back_as_they_were_written(tmp_path):
    record = SweepRecord(tmp_path)
    jobs = [job(tmp_path, 0, 0.5), job(tmp_path, 1, None, "failed", "ValueError: bad\x1b")]
    for each in reversed(jobs):
        record.append(each)
    assert SweepRecord(tmp_path).read() == jobs
    lines = (tmp_path / "sweep.jsonl").read_text().splitlines()
    assert len(lines) == 2
    assert json.loads(lines[1]) == {
        "job": 0,
        "overrides": ["x=0", "model.layers=[64,64]"],
        "status": "completed",
        "objective": 0.5,
        "directory": "000-x",
        "seconds": 1.25,
        "error": None,
    }


def test_an_objective_that_is_nan_survives(tmp_path):
    SweepRecord(tmp_path).append(job(tmp_path, 0, math.nan))
    (read,) = SweepRecord(tmp_path).read()
    assert math.isnan(read.objective)


def test_a_job_that_ran_again_counts_by_its_last_line(tmp_path):
    record = SweepRecord(tmp_path)
    record.append(job(tmp_path, 0, None, "failed", "ValueError: bad"))
    record.append(job(tmp_path, 1, 0.1))
    record.append(job(tmp_path, 0, 0.9))
    assert [(each.job, each.status) for each in record.read()] == [
        (0, "completed"),
        (1, "completed"),
    ]


def test_a_torn_line_costs_only_itself(tmp_path):
    record = SweepRecord(tmp_path)
    record.append(job(tmp_path, 0, 0.5))
    with record.path.open("ab") as file:
        file.write(b'{"job": 1, "over')
    record.append(job(tmp_path, 2, 0.5))
    assert [each.job for each in record.read()] == [0, 2]


def test_a_sweep_that_has_not_begun_has_no_jobs(tmp_path):
    assert SweepRecord(tmp_path).read() == []


def test_a_sweep_that_was_moved_finds_its_jobs(tmp_path):
    (tmp_path / "old").mkdir()
    SweepRecord(tmp_path / "old").append(job(tmp_path / "old", 0, 0.5))
    (tmp_path / "old").rename(tmp_path / "new")
    (read,) = SweepRecord(tmp_path / "new").read()
    assert read.directory == tmp_path / "new" / "000-x"


def test_a_record_that_cannot_be_written_is_an_error(tmp_path):
    with pytest.raises(RunDirectoryError, match=r"sweep\.jsonl"):
        SweepRecord(tmp_path / "gone").append(job(tmp_path, 0))


@pytest.mark.parametrize(("larger_is_better", "order"), [(True, "2 0 4 1 3"), (False, "0 2 4 1 3")])
def test_the_table_has_the_best_first_and_what_cannot_be_ranked_last(
    tmp_path, larger_is_better, order
):
    jobs = [
        job(tmp_path, 0, 0.1),
        job(tmp_path, 1, math.nan),
        job(tmp_path, 2, 0.9),
        job(tmp_path, 3, 5.0, "failed", "ValueError: bad"),
        job(tmp_path, 4, 0.05 if larger_is_better else 1.5),
    ]
    rows = table(jobs, larger_is_better=larger_is_better)
    assert all(len(row) == len(COLUMNS) for row in rows)
    assert " ".join(row[1] for row in rows) == order
    assert [row[0] for row in rows] == ["*", "", "", "", ""]
    assert rows[-1][2] == "failed"
    assert rows[-1][-1] == "ValueError: bad"
    assert rows[0][5] == f"x={order[0]} model.layers=[64,64]"


def test_no_job_is_best_where_none_can_be_ranked(tmp_path):
    rows = table([job(tmp_path, 0, None)], larger_is_better=True)
    assert rows[0][0] == ""
    assert rows[0][3] == ""
