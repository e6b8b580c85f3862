"""Metrics of other libraries on the command line, on two ranks of each framework."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

SMALL = (
    "hydra.run.dir=run",
    "driver.num_processes=2",
    "driver.num_threads=1",
    "data.global_batch_size=64",
    "trainer.max_steps=40",
    "trainer.eval_every=40",
    "checkpoint.save_every=null",
)


def evaluation(directory, *overrides):
    """The numbers of a run's evaluation."""
    command = [sys.executable, "-m", "expkit", *SMALL, *overrides]
    done = subprocess.run(
        command,
        cwd=directory,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (directory / "run/metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    return next(each["metrics"] for each in records[::-1] if each["split"] == "eval")


def test_torchmetrics_by_target(tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("torchmetrics")
    found = evaluation(
        tmp_path,
        "driver=torch_ddp",
        "+metrics.own._target_=expkit.metrics.AUROC",
        "+metrics.same._target_=torchmetrics.classification.MulticlassAccuracy",
        "+metrics.same.num_classes=10",
        "+metrics.same.average=micro",
        "+metrics.named._target_=expkit.metrics.ForeignMetric",
        "+metrics.named.metric._target_=torchmetrics.classification.MulticlassAUROC",
        "+metrics.named.metric.num_classes=10",
        "+metrics.named.output=output",
    )
    assert 0.6 < found["accuracy"] < 1
    assert found["same"] == pytest.approx(found["accuracy"], rel=1e-6)
    assert found["named"] == pytest.approx(found["own"], rel=1e-5)


def test_paddle_metrics_by_target(tmp_path):
    pytest.importorskip("paddle")
    found = evaluation(
        tmp_path,
        "driver=paddle_fleet",
        "+metrics.own._target_=expkit.metrics.TopKAccuracy",
        "+metrics.own.k=2",
        "+metrics.same._target_=paddle.metric.Accuracy",
        "+metrics.same.topk=[1,2]",
    )
    assert 0.6 < found["accuracy"] < 1
    assert found["same/acc_top1"] == found["accuracy"]
    assert found["same/acc_top2"] == found["own"]
