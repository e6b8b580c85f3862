import contextlib
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from expkit.config.catalog import make_catalog
from expkit.config.limits import MAX_FILE_BYTES, check_files, check_override_text
from expkit.config.overrides import parse
from expkit.config.validation import check
from expkit.core.errors import ConfigError

CATALOG = make_catalog()


def bomb():
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    return "\n".join(levels) + "\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (bomb(), "expands to more than"),
        ("a: " + "[" * 3000 + "]" * 3000, "nest"),
        ("".join(f"{' ' * n}a:\n" for n in range(900)), "nested more than"),
        ("a: " + "{b: " * 40 + "1" + "}" * 40, "nested more than"),
        ("a: 1\nb: 2\na: 3\n", "has the key 'a' twice (line 3)"),
        ("a: {b: 1, b: 2}\n", "has the key 'b' twice"),
        ("a: [1\n", "is not valid YAML"),
        ("a: 1\x00\n", "is not valid YAML"),
        ("a: *nowhere\n", "stands nowhere before it"),
    ],
)
def test_hostile_yaml_is_refused_within_a_second(write, text, reason):
    path = write("conf/model/x.yaml", "")
    path.write_text(text, encoding="utf-8")
    started = time.monotonic()
    (problem,) = check_files([path])
    assert time.monotonic() - started < 1
    assert problem.key == str(path)
    assert reason in problem.message


def test_large_file_is_refused_unread(write):
    path = write("conf/model/x.yaml", "")
    with path.open("wb") as file:
        file.truncate(10_000_000)
    started = time.monotonic()
    (problem,) = check_files([path])
    assert time.monotonic() - started < 0.1
    assert str(MAX_FILE_BYTES) in problem.message


def test_bytes_that_are_no_text_are_refused(write):
    path = write("conf/model/x.yaml", "")
    path.write_bytes(b"a: \xff\n")
    (problem,) = check_files([path])
    assert "not UTF-8" in problem.message


def test_ordinary_files_pass(conf):
    assert list(check_files(sorted(conf.rglob("*.yaml")))) == []


def test_aliases_and_merge_keys_within_reason_pass(write):
    text = "base: &base {lr: 1}\none: {<<: *base, x: 1}\ntwo: *base\nsame: [{a: 1}, {a: 2}]\n"
    assert list(check_files([write("x.yaml", text)])) == []


def test_hostile_file_is_refused_by_the_check(write, problems):
    path = write("conf/model/x.yaml", bomb())
    assert str(path) in problems("model=x")


@pytest.mark.parametrize(
    "text",
    [
        "a=" + "[" * 2000,
        "a=" + "[" * 1500 + "]" * 1500,
        "a=" + "{a:" * 1000,
        "a=" + "${" * 500 + "}" * 500,
        "a=" + "f(" * 100,
        "a=" + "x" * 10_000,
        "a=x\x00y",
    ],
)
def test_hostile_override_is_refused_before_it_is_parsed(text):
    problem = check_override_text(text)
    assert problem is not None
    assert problem.key == "a"


def test_two_thousand_overrides_are_refused(problems):
    assert set(problems(*["seed=1"] * 2000)) == {"overrides"}


@settings(max_examples=50, deadline=2000)
@given(st.text(max_size=60))
def test_any_text_is_parsed_or_refused(text):
    good, bad = parse([text], CATALOG, multirun=True)
    assert len(good) + bool(bad) == 1
    assert all("\n" not in str(problem) for problem in bad)


KEYS = st.sampled_from(
    ["trainer.n_epochs", "model", "seed", "data.source", "callbacks", "x.y", "name", "tags.0"]
)
VALUES = st.sampled_from(
    [
        "1",
        "null",
        "None",
        "[1,2]",
        "{a:1}",
        "${seed}",
        "${x}",
        "nan",
        "mlp",
        "''",
        "1e400",
        "-",
        "a=b",
    ]
)
MARKS = st.sampled_from(["", "+", "++", "~"])


@settings(
    max_examples=10, deadline=5000, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(MARKS, KEYS, VALUES), min_size=1, max_size=4))
def test_any_list_of_overrides_composes_or_is_refused_as_a_config_error(parts):
    overrides = [f"{mark}{key}={value}" for mark, key, value in parts]
    with contextlib.suppress(ConfigError):
        assert check(overrides).config["trainer"]["n_epochs"] != "None"
