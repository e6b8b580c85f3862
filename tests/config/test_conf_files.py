"""The files of conf/ keep to the schema and explain themselves."""

import pytest
import yaml

from expkit.config.catalog import PACKAGE_DIRECTORY, make_catalog, read_keys
from expkit.config.schema import CLOSED, GROUPS, LISTED, RunConfig, defaults, kinds

PATHS = sorted(PACKAGE_DIRECTORY.rglob("*.yaml"))
NAMES = [str(path.relative_to(PACKAGE_DIRECTORY)) for path in PATHS]


def read(name):
    return yaml.safe_load((PACKAGE_DIRECTORY / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize(("group", "option"), [("trainer", "default"), ("checkpoint", "default")])
def test_yaml_values_are_the_defaults_of_the_schema(group, option):
    assert read(f"{group}/{option}.yaml") == defaults(CLOSED[group])


def test_the_drivers_share_their_defaults():
    expected = defaults(CLOSED["driver"])
    options = [path.stem for path in (PACKAGE_DIRECTORY / "driver").glob("*.yaml")]
    values = [
        (option, *item) for option in options for item in read(f"driver/{option}.yaml").items()
    ]
    others = {
        (option, key)
        for option, key, value in values
        if key not in ("_target_", "framework") and value != expected[key]
    }
    assert others == {("paddle_fleet", "fleet")}
    assert {key for _, key, _ in values} == set(expected)


def test_yaml_values_of_the_run_are_the_defaults_of_the_schema():
    config = read("config.yaml")
    assert {key: config[key] for key in config if key not in ("defaults", "hydra")} == defaults(
        RunConfig
    )


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("data/")])
def test_loader_keys_of_each_data_set_are_the_defaults_of_the_schema(name):
    loader = {key: value for key, value in defaults(CLOSED["data"]).items() if value != {}}
    config = read(name)
    assert {key: config[key] for key in loader} == loader
    assert set(config) <= set(kinds(CLOSED["data"]))


def test_defaults_list_has_each_group_once_and_itself_first():
    entries = read("config.yaml")["defaults"]
    groups = [next(iter(entry)) for entry in entries[1:]]
    assert entries[0] == "_self_"
    assert groups[: len(LISTED)] == sorted(LISTED, key=groups.index)
    assert set(LISTED) <= set(groups)


@pytest.mark.parametrize("name", NAMES)
def test_each_file_says_what_it_is_and_each_key_what_it_means(name):
    text = (PACKAGE_DIRECTORY / name).read_text(encoding="utf-8")
    first = next(line for line in text.splitlines() if "@package" not in line)
    assert first.startswith("# ")
    without = [key.path for key in read_keys(text) if not key.comment and key.value]
    assert without == []


def test_line_reader_finds_the_keys_that_yaml_finds():
    def flatten(node, prefix=""):
        for key, value in node.items():
            yield f"{prefix}{key}"
            if isinstance(value, dict):
                yield from flatten(value, f"{prefix}{key}.")

    for name, path in zip(NAMES, PATHS, strict=True):
        config = read(name) or {}
        expected = {
            key for key in flatten(config) if key.split(".")[0] not in ("defaults", "hydra")
        }
        assert {key.path for key in read_keys(path.read_text(encoding="utf-8"))} == expected, name


def test_each_group_has_options():
    catalog = make_catalog()
    assert all(catalog.choices(group) for group in GROUPS)
