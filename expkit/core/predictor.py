"""Prediction: what a model says of each sample of a set, once and in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expkit.core.batch import Batch, EvalLoader
from expkit.core.binding import Binding
from expkit.core.collective import Collective
from expkit.core.driver import Driver
from expkit.core.errors import ExpkitError, PredictionError
from expkit.core.failure import step_error
from expkit.core.identity import identities
from expkit.core.predicted import as_given

_NUMBERS_AT_ONCE = 8192  # as text on the way to Python's own, a number takes 128 bytes

Row = dict[str, Any]
"""What is predicted of one sample, as JSON values by name."""


class Predictor:
    """Predicts one or more sets; `expkit.run.predictions.write_predictions` makes files of it.

    Nothing is compared with targets, which the sets need not have. What is predicted is told by the
    loss: its ``predictions`` (`expkit.losses.Loss`) of the output that it judges. Where there is no
    such loss it is the model's ``output``, see `expkit.core.predicted.as_given`.

    Args:
        driver: where the model runs.
        data: gives the sets: an object with ``eval_loaders`` (`expkit.data.Data`).
        model: a model to prepare the driver with; None where the driver holds one already.
        loss: the model's loss, see `Driver.prepare`.
        binding: how it is called, see `Driver.prepare`.
        outputs: names of outputs to give beside, as they are.
        limit_batches: predict no more than this many batches of each set; None = all.
        overfit_batches: where greater than 0, predict this many training batches instead.
        seed: the run's, of what is drawn when samples are read.

    Attributes:
        num_batches: how many batches it has predicted so far: a sign of life.
    """

    def __init__(
        self,
        *,
        driver: Driver,
        data: Any,
        model: Any = None,
        loss: Any = None,
        binding: Binding | None = None,
        outputs: Sequence[str] = (),
        limit_batches: int | None = None,
        overfit_batches: int = 0,
        seed: int = 0,
    ) -> None:
        if model is not None:
            driver.prepare(model, None, loss, binding)
        self._driver = driver
        self._loss = loss if hasattr(loss, "predictions") else None
        self._judged: str = "output" if self._loss is None else self._loss.output
        self._outputs = tuple(outputs)
        loaders: Mapping[Any, EvalLoader] = data.eval_loaders(
            rank=driver.rank,
            world_size=driver.world_size,
            limit_batches=limit_batches,
            overfit_batches=overfit_batches,
            in_step=driver.evaluates_together,
            seed=seed,
            whole_batches=True,
        )
        self._loaders = {str(name): loader for name, loader in loaders.items()}
        if len(self._loaders) < len(loaders):
            raise PredictionError(
                f"two sets have one name as text: {', '.join(map(repr, loaders))}; allowed: a name "
                "for each"
            )
        self.num_batches = 0

    @property
    def sets(self) -> tuple[str, ...]:
        """The names of the sets; a single one has the name ""."""
        return tuple(self._loaders)

    @property
    def group(self) -> Collective:
        """The ranks that share the samples."""
        return self._driver.group

    def rows(self, name: str = "") -> Iterator[Row]:
        """What is predicted of this rank's samples of a set, in their order.

        ``index`` is the sample's index in the set, and ``id`` its field of that name, where it has
        one.

        Raises:
            PredictionError: an output is not there, or has no row for each sample.
        """
        needs = frozenset((self._judged, *self._outputs))
        for batch in self._loaders[name].batches():
            try:
                columns = self._columns(batch, self._driver.evaluate_step(batch, needs))
            except ExpkitError:
                raise
            except Exception as error:
                raise step_error("prediction", batch, error) from error
            self.num_batches += 1
            rows = _rows(columns)
            if batch.weights is None:
                yield from rows
            else:  # those of weight 0 only fill up
                yield from (row for row, weight in zip(rows, batch.weights, strict=True) if weight)

    def _columns(
        self, batch: Batch, outputs: Mapping[str, NDArray[Any]]
    ) -> dict[str, Iterable[Any]]:
        """What the rows hold, by name; one entry per sample each."""
        size = len(batch.indices)
        columns: dict[str, Iterable[Any]] = {"index": batch.indices.tolist()}
        if batch.fields.get("id") is not None:
            columns["id"] = identities(batch.fields["id"], size)
        judged = _output(outputs, self._judged, size)
        if self._loss is None:
            predicted = {self._judged: as_given(judged)}
        else:
            target = batch.fields.get(self._loss.target)
            known = None if not hasattr(target, "shape") else np.asarray(target)
            predicted = self._loss.predictions(judged, known)
        columns |= {name: _entries(each) for name, each in predicted.items()}
        if self._outputs:
            asked = {name: _entries(_output(outputs, name, size)) for name in self._outputs}
            columns["outputs"] = _rows(asked)
        return columns


def _rows(columns: Mapping[str, Iterable[Any]]) -> Iterator[Row]:
    names = tuple(columns)
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(names, values, strict=True))


def _output(outputs: Mapping[str, NDArray[Any]], name: str, size: int) -> NDArray[Any]:
    """An output that has a row for each sample."""
    if name not in outputs:
        raise PredictionError(
            f"the model gives no output {name!r}; name one that it gives by loss.output=... or "
            f"trainer.predict_outputs=[...], or rename one: "
            f"trainer.output_mapping={{<output>: {name}}}"
        )
    output = outputs[name]
    if output.ndim == 0 or len(output) != size:
        raise PredictionError(
            f"output {name!r} has the shape {output.shape} for {size} samples; allowed: the sample "
            "as first axis"
        )
    return output


def _entries(values: NDArray[Any]) -> Iterable[Any]:
    """The entry of each sample as JSON values: a number, or nested lists of numbers.

    Of a sequence the masked positions are left out; in anything with more axes they are None.
    """
    if isinstance(values, np.ma.MaskedArray):
        return (row.compressed().tolist() if row.ndim == 1 else row.tolist() for row in values)
    step = max(1, _NUMBERS_AT_ONCE // max(1, values[:1].size))
    blocks = (values[start : start + step] for start in range(0, len(values), step))
    return chain.from_iterable(map(_numbers, blocks))


def _numbers(values: NDArray[Any]) -> list[Any]:
    """Numbers that are written as shortly as their precision allows, and read as they were."""
    if values.dtype in (np.float16, np.float32):
        values = values.astype(str).astype(np.float64)
    listed: list[Any] = values.tolist()
    return listed
