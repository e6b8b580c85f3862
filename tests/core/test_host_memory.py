"""Memory of big host arrays: used again, and never while anything still sees it."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

from expkit.core.host_memory import HostMemory

LEAST = 4096
BIG = (4, LEAST)


@pytest.fixture
def memory():
    return HostMemory(least_bytes=LEAST)


def address(array) -> int:
    return array.__array_interface__["data"][0]


def given_again(memory, where: int) -> bool:
    """Whether an array of the same size now lies at an address."""
    return address(memory.empty(BIG, np.uint8)) == where


VIEWS = {
    "the array": lambda array: array,
    "a slice": lambda array: array[1:2, 5:9],
    "a flat view": lambda array: array.reshape(-1),
    "a transposed view": lambda array: array.T,
    "another type": lambda array: array.view(np.int16),
    "a scalar array": lambda array: array[0, :1].reshape(()),
    "as an array": lambda array: np.asarray(memoryview(array)),
    "a memoryview": memoryview,
    "a cast memoryview": lambda array: memoryview(array).cast("B")[3:7],
    "what the array is a view of": lambda array: array.base,
    "the memory below": lambda array: memoryview(array.base.base),
    "a buffer of NumPy": lambda array: np.frombuffer(array.data.cast("B"), np.uint8)[7:],
    "a slice of a slice": lambda array: array[1:][1:][1:],
    "an iterator": lambda array: array.flat,
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_memory_is_not_given_again_while_a_view_lives(memory, view):
    array = memory.empty(BIG, np.uint8)
    array[...] = 7
    where = address(array)
    kept = view(array)
    del array
    gc.collect()
    assert not given_again(memory, where)
    other = memory.empty(BIG, np.uint8)
    other[...] = 1
    assert set(np.asarray(kept).tobytes()) == {7}
    del kept
    gc.collect()
    assert given_again(memory, where)  # the other one is still in use
    assert set(other.tobytes()) == {1}


def test_memory_is_not_given_again_while_a_torch_tensor_lives(memory):
    torch = pytest.importorskip("torch")
    array = memory.empty(BIG, np.float32)
    where = address(array)
    tensor = torch.from_numpy(array)[1:].view(torch.int32).flatten()[5:]
    del array
    assert address(memory.empty(BIG, np.float32)) != where
    assert tensor.numel() == 3 * LEAST - 5
    del tensor
    assert address(memory.empty(BIG, np.float32)) == where


def test_all_memory_of_a_state_serves_the_next(memory):
    shapes = [(LEAST,), (3, LEAST), (2, 2, LEAST), (3, LEAST)]
    found = []
    for _ in range(3):
        state = [memory.empty(shape, np.float64) for shape in shapes]
        assert [array.shape for array in state] == shapes
        found.append(sorted(map(address, state)))
        assert len(set(found[-1])) == len(shapes)
        del state
    assert found[0] == found[1] == found[2]


def test_never_more_is_held_than_was_in_use_at_once(memory):
    """Sizes that are not asked for any more make room for those that are."""
    state = [memory.empty((LEAST,), np.uint8) for _ in range(8)]
    assert memory.held_bytes == 8 * LEAST
    for size in (2, 8, 1, 3, 5, 1):
        del state
        state = [memory.empty((size * LEAST,), np.uint8) for _ in range(8 // size)]
        assert sum(array.nbytes for array in state) <= memory.held_bytes <= 8 * LEAST
    assert memory.held_bytes == 8 * LEAST
    more = [memory.empty((LEAST,), np.uint8) for _ in range(3)]
    assert memory.held_bytes == (8 + len(more)) * LEAST


def test_what_was_not_asked_for_the_longest_makes_room(memory):
    often, seldom = ((LEAST,), (2, LEAST))
    arrays = [memory.empty(often, np.uint8), memory.empty(seldom, np.uint8)]
    where = address(arrays[0])
    del arrays
    assert address(memory.empty(often, np.uint8)) == where
    memory.empty((LEAST + 1,), np.uint8)
    assert address(memory.empty(often, np.uint8)) == where
    assert memory.held_bytes == 2 * LEAST + 1


@pytest.mark.parametrize("dtype", ["float64", "float16", "int64", "bool", "complex64", "uint8"])
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (3, LEAST)])
def test_a_copy_is_equal_whatever_its_shape_and_type(memory, shape, dtype):
    array = (np.random.default_rng(0).standard_normal(shape) * 10).astype(dtype)
    copied = memory.copy(array)
    assert (copied.dtype, copied.shape) == (array.dtype, shape)
    assert copied.tobytes() == array.tobytes()
    assert not np.shares_memory(copied, array)
    assert copied.flags.c_contiguous
    assert copied.flags.writeable


def test_a_copy_of_a_strided_view_is_contiguous(memory):
    array = np.arange(2.0 * LEAST).reshape(2, -1).T
    copied = memory.copy(array)
    assert copied.flags.c_contiguous
    np.testing.assert_array_equal(copied, array)


def test_bfloat16_lies_in_kept_memory_too(memory):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.arange(2 * LEAST).astype(ml_dtypes.bfloat16)
    copied = memory.copy(array)
    assert copied.dtype == ml_dtypes.bfloat16
    assert copied.tobytes() == array.tobytes()


def test_small_arrays_are_ordinary_ones(memory):
    assert memory.empty((LEAST - 1,), np.uint8).base is None


def test_big_arrays_begin_with_a_page(memory):
    arrays = [memory.empty((LEAST + 8,), np.uint8) for _ in range(5)]
    assert {address(array) % 4096 for array in arrays} == {0}


def test_released_memory_does_not_come_back(memory):
    array, gone = memory.empty(BIG, np.uint8), memory.empty(BIG, np.uint8)
    array[...] = 7
    del gone
    memory.release()
    assert memory.held_bytes == 0
    assert set(array.tobytes()) == {7}  # what is in use stays as it is
    del array
    memory.empty((LEAST,), np.uint8)
    assert memory.held_bytes == LEAST


def test_any_thread_may_ask_and_end(memory):
    """No two arrays that live share memory, wherever they are made and dropped."""
    problems = []

    def work(number: int) -> None:
        random = np.random.default_rng(number)
        kept: list[np.ndarray] = []
        for _ in range(300):
            array = memory.empty((int(random.integers(1, 4)) * LEAST,), np.uint8)
            array[...] = number
            kept.append(array)
            if len(kept) > 5:
                old = kept.pop(int(random.integers(5)))
                if not (old == number).all():
                    problems.append(number)
                handed_over.append(old)  # ends in another thread
                if len(handed_over) > 10:
                    handed_over.pop(0)

    handed_over: list[np.ndarray] = []
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
