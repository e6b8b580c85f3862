from expkit.config.catalog import (
    PACKAGE_DIRECTORY,
    Catalog,
    make_catalog,
    read_keys,
    user_directories,
)


def test_keys_are_read_with_values_and_comments():
    text = """\
# What it is
defaults:
  - x: y
_target_: a.B  # class
sub:           # parent
  one: 'a # b' # quoted
  two: [1, 2]
three: a#b     # no comment inside a word
"""
    found = [(key.path, key.value, key.comment) for key in read_keys(text)]
    assert found == [
        ("_target_", "a.B", "class"),
        ("sub", "", "parent"),
        ("sub.one", "'a # b'", "quoted"),
        ("sub.two", "[1, 2]", ""),
        ("three", "a#b", "no comment inside a word"),
    ]


def test_own_conf_is_no_user_directory(monkeypatch):
    monkeypatch.chdir(PACKAGE_DIRECTORY.parent)
    if PACKAGE_DIRECTORY.name == "conf":
        assert user_directories() == []
    assert user_directories(str(PACKAGE_DIRECTORY)) == []


def test_earlier_directories_come_first_and_what_they_hide_is_known(write, here):
    mine = write("conf/model/mlp.yaml", "# mine\n")
    catalog = make_catalog()
    assert catalog.find("model", "mlp") == mine
    assert catalog.hidden == [(mine, PACKAGE_DIRECTORY / "model" / "mlp.yaml")]
    assert catalog.user_files == [mine]


def test_options_in_subdirectories_have_their_path_as_name(write, here):
    write("conf/experiment/paper/table_1.yaml", "# one\n")
    write("conf/data/_shared.yaml", "# part of others\n")
    write("conf/hydra/launcher/x.yaml", "# not ours\n")
    catalog = Catalog([here / "conf"])
    assert catalog.choices("experiment") == ["paper/table_1"]
    assert catalog.choices("data") == []
    assert "hydra" not in catalog.groups
