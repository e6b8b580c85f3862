"""What ``--help`` prints: every group, option and key, read from the config files themselves."""

from __future__ import annotations

from collections.abc import Iterator

from expkit.config.catalog import LOCAL, PACKAGE_DIRECTORY, Catalog, Option, make_catalog, read_keys
from expkit.config.schema import GROUPS

_WIDTH = 34

_USAGE = """\
expkit: declarative experiments that train the same way on every driver

Usage
  expkit [group=option ...] [key=value ...]      run one experiment (or: python -m expkit ...)
  expkit -m key=value1,value2 ...                run one for each combination
  expkit init [directory]                        lay out a project of your own
  expkit verify PATH ...                         say of each checkpoint whether it is whole
  expkit convert PATH --to FRAMEWORK             weights for another framework: torch, paddle, numpy
                                                 (each of these has its own --help)

Options
  --help              this text
  --cfg job           show the composed config, run nothing
  --info defaults-tree   show which file each part comes from, run nothing
  --config-dir DIR    look for your options here too; ./conf is always looked at
  -m, --multirun      sweep over comma-separated values

Recipes
  expkit                                         train an MLP on handwritten digits
  expkit driver=paddle model=cnn                 swap parts
  expkit driver=torch_ddp driver.num_processes=2 train in two processes
  expkit trainer.n_epochs=5 optimizer.lr=0.01    change keys
  expkit experiment=digits_cnn debug=fast        a named experiment, one batch of everything
  expkit resume=latest                           go on with the last run
  expkit 'callbacks=[progress,early_stop]'       several options of one group
  expkit -m optimizer.lr=0.01,0.001 seed=0,1     a grid of four runs
"""


def help_text(config_dir: str | None = None) -> str:
    """The whole help, the user's own options included.

    Raises:
        ConfigError: ``config_dir`` is no directory.
    """
    catalog = make_catalog(config_dir)
    lines = [_USAGE, "Keys of the run", *_run_keys(), ""]
    names = [*GROUPS, "experiment", "debug"]
    names += [name for name in catalog.groups if name not in names and name != LOCAL]
    chosen = _default_choices()
    for group in names:
        lines += [*_group(catalog, group, chosen.get(group, "")), ""]
    lines.append(
        f"Your defaults for all runs: conf/{LOCAL}/default.yaml (first line: # @package _global_)"
    )
    return "\n".join(lines)


def _run_keys() -> Iterator[str]:
    for key in read_keys((PACKAGE_DIRECTORY / "config.yaml").read_text(encoding="utf-8")):
        yield _row("  ", f"{key.path}={key.value}", key.comment)


def _default_choices() -> dict[str, str]:
    """The option of each group in the defaults list, as written."""
    choices = {}
    for line in (PACKAGE_DIRECTORY / "config.yaml").read_text(encoding="utf-8").splitlines():
        group, _, choice = line.strip().removeprefix("- ").partition(": ")
        if line.startswith("  - ") and choice and " " not in group:
            choices[group] = choice
    return choices


def _group(catalog: Catalog, group: str, chosen: str) -> Iterator[str]:
    yield f"{group}=... {f'(default: {chosen})' if chosen not in ('', 'null') else ''}".rstrip()
    told: set[str] = set()
    options = sorted(
        catalog.groups.get(group, {}).values(),
        key=lambda option: (option.is_shared, option.name not in chosen.strip("[]").split(", ")),
    )
    for option in options:
        yield _row("  ", "(all of them)" if option.is_shared else option.name, option.description)
        if group in GROUPS:
            yield from _keys(option, told)


def _keys(option: Option, told: set[str]) -> Iterator[str]:
    """The keys of an option; what another option of the group has likewise is told once."""
    for key in option.keys:
        if key.path.split(".")[-1] == "_target_" or not key.value:
            continue
        row = _row("      ", f"{option.group}.{key.path}={key.value}", key.comment)
        if row not in told:
            told.add(row)
            yield row


def _row(indent: str, left: str, right: str) -> str:
    return f"{indent}{left:<{_WIDTH - len(indent)}}  {right}".rstrip()
