"""Makes the pictures of the README from three runs: python docs/make_pictures.py."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt

from expkit.run.records import read_records

IMAGES = Path(__file__).parent / "images"
DRIVERS = {"torch": "-", "paddle": "--", "numpy": ":"}
WIDTH = 100
FONT_SIZE = 9.0
DPI = 110
DAY = "outputs/2026-11-30/07-12-03-digits"


def train(driver, directory):
    """The lines that a run prints, and its records."""
    run = directory / driver
    arguments = [f"driver={driver}"] if driver != "torch" else []
    made = subprocess.run(
        [sys.executable, "-m", "expkit", *arguments, f"hydra.run.dir={run}"],
        capture_output=True,
        text=True,
        check=True,
        cwd=directory,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    lines = re.sub(rf"\b{driver}$", DAY, made.stdout, flags=re.MULTILINE).splitlines()
    return lines, read_records(run / "metrics.jsonl")


def draw_terminal(lines, path):
    """The text as it stands on a terminal; what is wider ends in an ellipsis."""
    shown = [("$ python -m expkit", "#ffffff"), *((line, "#c9d1d9") for line in lines)]
    line_height = FONT_SIZE * 1.5 / 72
    width, height = WIDTH * FONT_SIZE * 0.602 / 72 + 0.4, line_height * len(shown) + 0.4
    figure = plt.figure(figsize=(width, height), facecolor="#0d1117")
    for number, (line, color) in enumerate(shown):
        text = line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…"
        place = (0.2 / width, 1 - (0.2 + number * line_height) / height)
        options = {"family": "DejaVu Sans Mono", "size": FONT_SIZE, "va": "top"}
        figure.text(*place, text, color=color, **options)
        if text[:1].isalpha():
            figure.text(*place, text.split(" ")[0], color="#7ee787", **options)
    figure.savefig(path, dpi=DPI, metadata={"Software": None})


def draw_curves(records, path):
    """Training loss and accuracy by step: the drivers' curves lie on each other."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for width, (driver, style) in zip((5, 3, 2), DRIVERS.items(), strict=True):
        own = records[driver]
        losses = [
            (r.step, r.metrics["loss"]) for r in own if "loss" in r.metrics and r.split == "train"
        ]
        accuracies = [(r.step, r.metrics["accuracy"]) for r in own if r.split == "eval"]
        options = {"linestyle": style, "linewidth": width, "alpha": 0.8, "label": driver}
        left.plot(*zip(*losses, strict=True), **options)
        right.plot(*zip(*accuracies, strict=True), **options)
    left.set(xlabel="step", ylabel="training loss", yscale="log")
    right.set(xlabel="step", ylabel="accuracy on the evaluation set", ylim=(0.75, 1.0))
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
    figure.savefig(path, dpi=DPI, metadata={"Software": None})


def main():
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        runs = {driver: train(driver, Path(place)) for driver in DRIVERS}
    draw_terminal(runs["torch"][0], IMAGES / "terminal.png")
    draw_curves({driver: records for driver, (_, records) in runs.items()}, IMAGES / "curves.png")


if __name__ == "__main__":
    main()
