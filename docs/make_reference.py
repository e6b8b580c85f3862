"""Writes docs/reference/config.md from conf/: python docs/make_reference.py [--check]."""

import sys
from pathlib import Path

from expkit.config.catalog import PACKAGE_DIRECTORY, Catalog, read_keys
from expkit.config.schema import GROUPS, OPTIONAL

PAGE = Path(__file__).parent / "reference" / "config.md"
HEAD = """\
# Config keys

Every group, option and key of `conf/`, as its files say it. `python docs/make_reference.py` makes
this page. `python -m expkit --help` prints the same for your version, your own options included.
"""


def table(rows):
    yield "| key | default | meaning |"
    yield "|---|---|---|"
    for key, value, meaning in rows:
        yield f"| `{key}` | {code(value)} | {meaning.replace('|', '&#124;')} |"


def code(value):
    return f"`{value}`".replace("|", "&#124;") if value else ""


def option_lines(option):
    yield f"### {option.group}={option.name}"
    yield ""
    file = f"{option.group}/{option.path.name}"
    yield f"{option.description}. File: [`{file}`](../../conf/{file})"
    prefix = "" if option.group in OPTIONAL else f"{option.group}."
    rows = [(prefix + key.path, key.value, key.comment) for key in option.keys if key.value]
    if rows:
        yield ""
        yield from table(rows)
    yield ""


def page():
    catalog = Catalog([PACKAGE_DIRECTORY])
    yield HEAD
    yield "## Keys of the run"
    yield ""
    text = (PACKAGE_DIRECTORY / "config.yaml").read_text(encoding="utf-8")
    yield from table((key.path, key.value, key.comment) for key in read_keys(text))
    yield ""
    for group in (*GROUPS, *OPTIONAL):
        yield f"## {group}"
        yield ""
        for option in catalog.groups[group].values():
            yield from option_lines(option)


def main():
    text = "\n".join(page()).rstrip() + "\n"
    if sys.argv[1:] == ["--check"]:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
            sys.exit(f"{PAGE} is out of date: run python docs/make_reference.py")
    else:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
