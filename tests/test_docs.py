"""The pages are true: commands run, printed files are the real ones, links lead somewhere."""

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from expkit.app import run_command
from expkit.config.catalog import PACKAGE_DIRECTORY
from expkit.config.validation import check
from expkit.core.errors import ConfigError

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")],
)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FILE_NAME = re.compile(r"# ([\w./]+\.(?:py|yaml))")
REFUSED = "expkit: this cannot be run"
OWN_PROJECT = ROOT / "examples" / "own_project"


@dataclass(frozen=True)
class Command:
    """A command of a page, and the lines that the page prints below it."""

    page: Path
    text: str
    output: tuple[str, ...]

    @property
    def arguments(self):
        """The arguments of expkit."""
        words = shlex.split(self.text, comments=True)
        return words[words.index("expkit") + 1 :]

    @property
    def is_expkit(self):
        return self.text.startswith(("python -m expkit", "expkit "))

    @property
    def overrides(self):
        return [word for word in self.arguments if word not in ("-m", "--multirun")]

    @property
    def is_experiment(self):
        """Whether it composes a config: it neither only shows something nor lays out a project."""
        shows = ("--help", "--cfg", "--info", "--version", "init", "verify", "convert")
        return self.is_expkit and not any(word in shows for word in self.arguments)

    @property
    def is_refused(self):
        return any(line.startswith(REFUSED) for line in self.output)

    def __str__(self):
        return f"{self.page.relative_to(ROOT)}: {self.text}"


def blocks(page, *languages):
    return [text for name, text in FENCE.findall(page.read_text("utf-8")) if name in languages]


def commands(page):
    found = []
    for block in blocks(page, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            text, *output = part.rstrip("\n").split("\n")
            found.append(Command(page, text, tuple(output)))
    return found


def files(page):
    """The files that a page prints, by name: blocks whose first line is a comment with a path."""
    found = {}
    for block in blocks(page, "python", "yaml"):
        match = FILE_NAME.fullmatch(block.split("\n")[0])
        if match:
            found[match[1]] = block.partition("\n")[2]
    return found


ALL = [command for page in PAGES for command in commands(page)]
GUIDES = [page for page in PAGES if page.parent.name == "guide" and commands(page)]
EXPERIMENTS = [each for each in ALL if each.is_experiment and each.page not in GUIDES]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """An empty working directory; modules that are imported from it are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


def lay_out(directory, page):
    for name, text in files(page).items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def with_own_project(directory):
    """The files of examples/own_project, for the README's commands."""
    for path in OWN_PROJECT.rglob("*"):
        if path.is_file() and path.suffix in (".py", ".yaml"):
            place = directory / path.relative_to(OWN_PROJECT)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(path.read_bytes())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page):
    text = FENCE.sub("", page.read_text("utf-8"))
    for target in LINK.findall(text):
        if target.startswith(("http://", "https://")):
            continue
        name, _, heading = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), f"{target} in {page.name}"
        if heading:
            titles = re.findall(r"^#+ (.*)$", path.read_text("utf-8"), re.MULTILINE)
            anchors = [re.sub(r"[^\w\- ]", "", t).strip().lower().replace(" ", "-") for t in titles]
            assert heading in anchors, f"{target} in {page.name}"


def test_pages_have_commands_to_check():
    assert len(EXPERIMENTS) >= 12
    assert len(GUIDES) >= 7
    assert all(command.is_experiment for page in GUIDES for command in commands(page))


@pytest.mark.parametrize("command", EXPERIMENTS, ids=str)
def test_command_composes_or_is_refused_as_printed(command, project):
    lay_out(project, command.page)
    if command.page.parent == ROOT:
        with_own_project(project)
    multirun = "-m" in command.arguments
    if command.is_refused:
        with pytest.raises(ConfigError) as caught:
            check(command.overrides, multirun=multirun)
        told = "\n".join(str(problem) for problem in caught.value.problems)
        printed = [line.strip() for line in command.output[1:] if line.strip() != "..."]
        for line in printed:
            assert all(part.strip() in told for part in line.split("..."))
    else:
        check(command.overrides, multirun=multirun)


def test_own_project_of_the_readme_is_the_one_in_examples():
    printed = files(ROOT / "README.md")
    script = (ROOT / "examples" / "python_api.py").read_text("utf-8")
    assert script.partition("\n\n")[2].strip() == printed.pop("python_api.py").strip()
    there = {
        str(path.relative_to(OWN_PROJECT)): path.read_text("utf-8")
        for path in OWN_PROJECT.rglob("*")
        if path.suffix in (".py", ".yaml")
    }
    assert there.keys() == printed.keys()
    for name, text in printed.items():
        assert there[name] == text, name


def test_config_reference_is_what_the_config_files_say():
    made = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "make_reference.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr


def test_tables_of_the_guide_name_every_group_and_option():
    text = (ROOT / "docs" / "guide" / "concepts.md").read_text("utf-8")
    rows = {
        row[0]: row[1] for row in re.findall(r"^\| `(\w+)` \|.*\| (.*) \|$", text, re.MULTILINE)
    }
    for group in PACKAGE_DIRECTORY.iterdir():
        if group.name in ("callbacks", "experiment", "debug") or not group.is_dir():
            continue
        options = {path.stem for path in group.glob("*.yaml")}
        if options:
            assert set(re.findall(r"`(\w+)`", rows[group.name])) == options, group.name


def normalised(line):
    """A line without what differs between two runs of one command."""
    line = re.sub(r"[\d.]+e[+-]?\d+|\d[\d.:,]*", "#", line)
    return re.sub(r" +", " ", re.sub(r"(outputs/)?#-#-#/[\w#.-]*", "RUN", line)).strip()


def matches(printed, lines):
    """Whether all printed lines come among the lines, in order; ``...`` stands for anything."""
    rest = iter([normalised(line) for line in lines])
    for line in printed:
        wanted = [normalised(part) for part in line.split("...")]
        if not any(wanted):
            continue
        for candidate in rest:
            if candidate.startswith(wanted[0]) and candidate.endswith(wanted[-1]):
                break
        else:
            return False
    return True


def accuracies(lines):
    """The best accuracies of runs, and the objectives of a sweep's table."""
    pattern = r"best +accuracy ([\d.]+)|completed +(0\.\d+)"
    return [float(a or b) for line in lines for a, b in re.findall(pattern, line)]


NUMPY = [
    command
    for command in commands(ROOT / "README.md")
    if command.is_experiment and command.output and "driver=numpy" in command.text
]


@pytest.mark.slow
@pytest.mark.parametrize("command", NUMPY, ids=str)
def test_command_of_the_readme_prints_what_the_readme_shows(command, project, capfd):
    assert run_command(command.arguments) == 0
    lines = capfd.readouterr().out.splitlines()
    assert matches(command.output, lines), "\n".join(lines)
    shown = accuracies(command.output)
    assert accuracies(lines)[len(accuracies(lines)) - len(shown) :] == pytest.approx(
        shown, abs=0.01
    )


@pytest.mark.slow
@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_commands_of_the_guide_run_with_its_files(page, project, capfd):
    pytest.importorskip("torch")
    if any("paddle" in command.text for command in commands(page)):
        pytest.importorskip("paddle")
    lay_out(project, page)
    for command in commands(page):
        capfd.readouterr()
        code = run_command(command.arguments)
        told = capfd.readouterr()
        failed = "failed;" in "".join(command.output)
        assert code == (2 if command.is_refused or failed else 0), (
            f"{command}\n{told.out}{told.err}"
        )
        lines = (told.out + told.err).splitlines()
        assert matches(command.output, lines), f"{command}\n{told.out}{told.err}"


def run_script(path, *arguments, cwd):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *path, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_own_project_trains(tmp_path):
    pytest.importorskip("torch")
    with_own_project(tmp_path)
    made = run_script(["-m", "expkit"], "model=my_model", "data=my_data", cwd=tmp_path)
    assert made.returncode == 0, made.stdout + made.stderr
    assert accuracies(made.stdout.splitlines())[0] > 0.95


@pytest.mark.slow
def test_python_api_example_trains(tmp_path):
    pytest.importorskip("torch")
    made = run_script([str(ROOT / "examples" / "python_api.py")], cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert float(re.search(r"'accuracy': ([\d.]+)", made.stdout)[1]) > 0.96
    assert not list(tmp_path.iterdir()), "nothing is written without a checkpoint or a logger"
