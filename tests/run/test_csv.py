from __future__ import annotations

import csv
import math

from expkit.run.csv import COLUMNS, CSV_FILE, CsvLogger


def rows(directory):
    with (directory / CSV_FILE).open(newline="") as file:
        return [tuple(row) for row in csv.reader(file)]


def test_one_number_a_line_under_the_named_columns(tmp_path):
    logger = CsvLogger(directory=tmp_path)
    logger.log("train", 1, 0, {"loss": 0.5, "lr": 0.1})
    logger.log("eval", 1, 0, {"accuracy": math.nan})
    logger.close()
    assert rows(tmp_path) == [
        COLUMNS,
        ("1", "0", "train", "loss", "0.5"),
        ("1", "0", "train", "lr", "0.1"),
        ("1", "0", "eval", "accuracy", "nan"),
    ]


def test_names_with_commas_quotes_and_control_characters_stay_in_their_cell(tmp_path):
    logger = CsvLogger(tmp_path)
    logger.log("train", 1, 0, {'a,"b"\nc\x1b[31m': 2.0})
    logger.close()
    assert (tmp_path / CSV_FILE).read_text().count("\n") == 2
    assert rows(tmp_path)[1] == ("1", "0", "train", 'a,"b" c\\x1b[31m', "2.0")


def test_a_resumed_run_has_each_step_once_and_one_header(tmp_path):
    first = CsvLogger(tmp_path)
    for step in range(1, 11):
        first.log("train", step, 0, {"loss": 1.0})
    first.close()
    second = CsvLogger(tmp_path)
    second.rewind(6)
    for step in range(7, 16):
        second.log("train", step, 0, {"loss": 1.0})
    second.close()
    header, *numbers = rows(tmp_path)
    assert header == COLUMNS
    assert [int(row[0]) for row in numbers] == list(range(1, 16))


def test_a_missing_directory_is_one_warning(tmp_path, caplog):
    logger = CsvLogger(tmp_path / "gone")
    logger.log("train", 1, 0, {"loss": 1.0})
    logger.log("train", 2, 0, {"loss": 1.0})
    logger.close()
    assert len(caplog.records) == 1
