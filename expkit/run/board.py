"""TensorBoard: scalars, texts and hyperparameters, without any deep-learning framework."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from expkit.core.logger import Split
from expkit.run.clock import WallClock
from expkit.run.event_file import EventFile
from expkit.run.loggers import Describing, FileLogger

TENSORBOARD_DIRECTORY = "tensorboard"


class TensorBoardLogger(FileLogger, Describing):
    """Writes ``train/<name>`` and ``eval/<name>`` by step into ``tensorboard/``.

    The config stands beside the first record as the text ``config``; a completed run enters the
    table of the HParams page, with its final metrics as ``result/<name>``.

    TensorBoard's message classes are imported by the first record, so that the first step does not
    wait for them. After a failed write the logger is silent: a file with a hole in it cannot be
    read any further.

    Args:
        directory: the run directory.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory / TENSORBOARD_DIRECTORY)
        self._clock = WallClock()
        self._file: EventFile | None = None
        self._config_text = ""
        self._settings: Mapping[str, Any] = {}

    def rewind(self, step: int) -> None:
        """Make readers forget the points after ``step``; the older files stay as they are."""
        from tensorboard.compat.proto.event_pb2 import SessionLog

        start = SessionLog(status=SessionLog.START)
        self._write(step=step + 1, session_log=start)

    def describe(self, config_text: str, settings: Mapping[str, Any]) -> None:
        """See `Describing.describe`; nested settings get dotted names on the HParams page."""
        self._config_text = config_text
        self._settings = settings

    def conclude(self, metrics: Mapping[str, float]) -> None:
        """See `Describing.conclude`."""
        self._attempt(self._write_hparams, metrics)

    def _record(self, split: Split, step: int, epoch: int, metrics: Mapping[str, float]) -> None:  # noqa: ARG002
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [
            Summary.Value(tag=f"{split}/{name}", simple_value=value)
            for name, value in metrics.items()
        ]
        self._write(step=step, summary=Summary(value=values))

    def _write_config(self, step: int) -> None:
        """Show the config as it stands, not as Markdown."""
        from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
        from tensorboard.compat.proto.types_pb2 import DT_STRING

        # Four blanks make a code block of Markdown, which is what TensorBoard shows.
        block = "".join(f"    {line}\n" for line in self._config_text.splitlines())
        tensor = TensorProto(
            dtype=DT_STRING,
            tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)]),
            string_val=[block.encode()],
        )
        plugin = SummaryMetadata.PluginData(plugin_name="text")
        metadata = SummaryMetadata(plugin_data=plugin)
        value = Summary.Value(tag="config", tensor=tensor, metadata=metadata)
        self._write(step=step, summary=Summary(value=[value]))

    def _write_hparams(self, metrics: Mapping[str, float]) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.hparams.api_pb2 import STATUS_SUCCESS
        from tensorboard.plugins.hparams.plugin_data_pb2 import (
            HParamsPluginData,
            SessionEndInfo,
            SessionStartInfo,
        )

        now = self._clock.now()
        start = SessionStartInfo(start_time_secs=now - self._clock.elapsed())
        for name, value in _flatten(self._settings).items():
            if isinstance(value, bool):
                start.hparams[name].bool_value = value
            elif isinstance(value, (int, float)):
                start.hparams[name].number_value = value
            else:
                start.hparams[name].string_value = "null" if value is None else str(value)
        end = SessionEndInfo(status=STATUS_SUCCESS, end_time_secs=now)
        values = [
            _hparams_value("session_start_info", HParamsPluginData(session_start_info=start)),
            _hparams_value("session_end_info", HParamsPluginData(session_end_info=end)),
        ]
        values += [
            Summary.Value(tag=f"result/{name}", simple_value=value)
            for name, value in metrics.items()
        ]
        self._write(step=0, summary=Summary(value=values))

    def _write(self, *, step: int, **fields: Any) -> None:
        """Append one event; the first one opens the file and is followed by the config."""
        from tensorboard.compat.proto.event_pb2 import Event

        if self.failed:
            return
        now = self._clock.now()
        is_first = self._file is None
        if self._file is None:
            self._file = EventFile(self.path)
            header = Event(wall_time=now, file_version="brain.Event:2")
            self._file.write(header.SerializeToString())
        self._file.write(Event(wall_time=now, step=step, **fields).SerializeToString())
        if is_first and self._config_text:
            # After the event: the one that makes readers forget this step shall not hide it.
            self._write_config(step)

    def _release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The leaves of nested mappings by dotted name."""
    leaves: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            leaves |= _flatten(value, f"{prefix}{name}.")
        else:
            leaves[f"{prefix}{name}"] = value
    return leaves


def _hparams_value(tag: str, content: Any) -> Any:
    """A summary value that carries a message of the HParams page."""
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboard.compat.proto.types_pb2 import DT_FLOAT

    empty = TensorProto(
        dtype=DT_FLOAT,
        tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=0)]),
    )
    plugin = SummaryMetadata.PluginData(plugin_name="hparams", content=content.SerializeToString())
    metadata = SummaryMetadata(plugin_data=plugin)
    return Summary.Value(tag=f"_hparams_/{tag}", tensor=empty, metadata=metadata)
