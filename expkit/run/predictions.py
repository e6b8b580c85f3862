"""predictions.jsonl: what a model says of each sample, one JSON object a line.

``{"index":0,"label":3,"probability":0.998127}``: the lines are in the order of the data set, each
sample once, on any number of ranks. They are strict JSON; see `expkit.run.strict_json` for numbers
that are not finite.
"""

from __future__ import annotations

import heapq
import os
import re
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote
from zlib import crc32

from expkit.core.collective import Collective
from expkit.core.errors import PredictionError
from expkit.core.predictor import Predictor, Row
from expkit.run.atomic import sync_directory, temporary_sibling
from expkit.run.strict_json import encode_line

_BUFFER_BYTES = 1 << 20
_LONGEST_NAME = 160  # bytes of a set's name; a file has 255 in all
_BEFORE_INDEX = len(b'{"index":')


def write_predictions(predictor: Predictor, directory: Path) -> dict[str, int]:
    """Predict all sets, each into a file of its own; a collective of all ranks.

    A file is whole or not there. Each rank writes its part beside it, and rank 0 puts them
    together; what is in memory does not grow with the number of samples.

    Args:
        predictor: predicts this rank's samples.
        directory: the same for all ranks; a file that is there already is replaced.

    Returns:
        How many samples are in each file, by its name: ``predictions.jsonl``, of a named set
        ``predictions-<set>.jsonl``.

    Raises:
        PredictionError: a file cannot be written, or an output is not as it should be.
    """
    counts = {}
    for name in predictor.sets:
        path = directory / file_of(name)
        counts[path.name] = _write_set(predictor.group, path, predictor.rows(name))
    return counts


def file_of(name: str) -> str:
    """The file of a set; what has no place in a file's name stands in it as in an address.

    Of a name that is too long for a file the beginning is there, and a checksum.
    """
    part = re.sub(r"[^\w.+-]", lambda match: quote(match[0], safe=""), name)
    encoded = part.encode()
    if len(encoded) > _LONGEST_NAME:
        part = f"{encoded[:_LONGEST_NAME].decode(errors='ignore')}-{crc32(encoded):08x}"
    return f"predictions-{part}.jsonl" if name else "predictions.jsonl"


def _write_set(group: Collective, path: Path, rows: Iterable[Row]) -> int:
    """Write this rank's part, and have it put together with the others; gives their samples."""
    part = temporary_sibling(path)
    try:
        count = _write(part, map(encode_line, rows))
        group.barrier()  # which waits longer than other collectives may
        parts, counts = zip(*group.all_gather((str(part), count)), strict=True)
        group.call_on_main(lambda: _put_together([Path(each) for each in parts], path))
    except OSError as error:
        message = f"cannot write {path}: {error.strerror}"
        if isinstance(error, FileNotFoundError) and group.world_size > 1:
            message += f" ({error.filename}); all ranks must see the same directory"
        raise PredictionError(message) from error
    finally:
        part.unlink(missing_ok=True)
    return sum(counts)


def _put_together(parts: list[Path], path: Path) -> None:
    """Make one file of the ranks' parts, each of which is in the order of the data set."""
    whole = parts[0] if len(parts) == 1 else _merged(parts, temporary_sibling(path))
    whole.replace(path)
    sync_directory(path.parent)


def _merged(parts: list[Path], whole: Path) -> Path:
    try:
        with ExitStack() as stack:
            files = [stack.enter_context(part.open("rb", _BUFFER_BYTES)) for part in parts]
            _write(whole, heapq.merge(*files, key=_index))
    except BaseException:
        whole.unlink(missing_ok=True)
        raise
    return whole


def _index(line: bytes) -> int:
    return int(line[_BEFORE_INDEX : line.index(b",")])


def _write(path: Path, lines: Iterable[bytes]) -> int:
    """Write lines and wait until they are on the disk; gives their number."""
    count = 0
    with path.open("xb", _BUFFER_BYTES) as file:
        for line in lines:
            file.write(line)
            count += 1
        file.flush()
        os.fsync(file.fileno())
    return count
