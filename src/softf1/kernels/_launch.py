"""How kernels are laid over rows × classes, and how they are started.

Triton looks a kernel up by every argument at every call, which takes longer than a small kernel
runs. Here a plan, made once for a shape, remembers its compiled kernel. How that is started is no
public interface of Triton: it is used for the versions in `KNOWN` only, and with any other Triton
starts the kernels itself.

Compiling a kernel takes about a second, of which most is spent outside Python: `compiling` does it
for many kernels side by side, in threads. A kernel is compiled, and not started, if it is given
tensors without data (of the device "meta").
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import lru_cache, reduce
from operator import or_
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import triton

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from torch import Tensor

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
KNOWN = ((3, 6), (3, 9))  # run on a GPU; read in its source
DIRECT = tuple(map(int, triton.__version__.split(".")[:2])) in KNOWN and not INTERPRETED
MOST_PROGRAMS = 2_048  # of a kernel whose programs leave sums to the last of them
LONGEST_TILE = 8_192  # longer rows are read piece by piece
LONGEST_READY = 16_384  # but for those whose gradient forward writes; 32,768 are slower so
FEW = 16  # so few classes are four threads' or one's
MOST_SUMS = 2**18  # classes times programs, where there are more programs than multiprocessors
MOST_PARTS = 4  # whose classes a program of `_softmax_batch_long` keeps in registers
SLOTS = 4_096  # counters of a device

address_of = torch.Tensor.data_ptr


class Tile(NamedTuple):
    """S pieces of W classes, N rows, and how many warps and programs share the work."""

    s: int
    n: int
    w: int
    warps: int
    programs: int


class Ready(NamedTuple):
    """A tile for value and gradient in one.

    `again`: terms of all entries are computed twice, so that fewer registers are needed. `stages`:
    2 loads rows while those before are worked on.
    """

    tile: Tile
    again: bool
    stages: int = 1


class Lanes(NamedTuple):
    """A part of a long row: `lanes` of `v` classes."""

    lanes: int
    v: int
    warps: int
    programs: int


class Shape(NamedTuple):
    """What a plan depends on: sizes and strides of the logits, types, and where they are."""

    n: int
    c: int
    stride_n: int
    stride_c: int
    dtype: torch.dtype
    labels: torch.dtype
    device: torch.device

    @property
    def element_size(self) -> int:
        """Bytes of an entry."""
        return self.dtype.itemsize

    @property
    def vector(self) -> int:
        """How many entries of a row may be moved at once, up to 16 bytes."""
        if self.stride_c != 1:
            return 1
        together = 16 // self.element_size | self.c | (self.stride_n if self.n > 1 else 0)
        return together & -together

    @property
    def many(self) -> int:
        """The number of multiprocessors."""
        return processors(self.device)


def kind_of(x: Tensor, target: Tensor) -> tuple[Any, ...]:
    """Returns what plans depend on, to look them up by; `shape_of` reads it."""
    return x.shape, x.stride(), x.dtype, x.device, target.dtype, target.stride()


def shape_of(kind: tuple[Any, ...]) -> tuple[Shape, tuple[int, ...]]:
    """Returns the shape and the strides of the target."""
    (n, c), (stride_n, stride_c), dtype, device, labels, strides = kind
    return Shape(n, c, stride_n, stride_c, dtype, labels, device), strides


@lru_cache(maxsize=32)
def processors(device: torch.device) -> int:
    """Returns how many multiprocessors the device has; a few for the interpreter."""
    if device.type != "cuda":
        return 2
    return torch.cuda.get_device_properties(device).multi_processor_count


def choose_tile(
    n: int, c: int, vector: int, *, entries: int, warps: int, together: int, many: int
) -> Tile:
    """Lays tiles over n × c with `entries` a thread of one row; a long row is cut into tiles.

    Args:
        n: Rows.
        c: Classes.
        vector: Entries that are moved at once.
        entries: Of one row for a thread.
        warps: The least number of warps of a program.
        together: Programs that share a multiprocessor, 0 for as many as there are blocks.
        many: Multiprocessors.
    """
    width = min(triton.next_power_of_2(c), LONGEST_TILE)
    entries = max(vector, min(entries, width))
    lanes = width // entries
    warps = max(warps, lanes // 32)
    rows = max(1, min(32 * warps // lanes, triton.next_power_of_2(max(n, 1))))
    blocks = triton.cdiv(max(n, 1), rows)
    programs = min(blocks, many * together) if together else blocks
    return Tile(entries // vector, rows, lanes * vector, warps, programs)


def room_for(numbers: int) -> int:
    """Returns a power of two from 128 up that is not below `numbers`, one of few.

    A kernel is compiled once for each: batches of many lengths are to share it.

    >>> [room_for(n) for n in (1, 128, 129, 2048)]
    [128, 128, 512, 2048]
    """
    room = 128
    while room < numbers:
        room *= 4
    return room


@lru_cache(maxsize=1024)
def forward_tile(n: int, c: int, vector: int, many: int) -> Tile:
    """Rows of one tile, read once: a thread has much of a row, so that few share it."""
    entries, together = (4, 8) if c <= FEW else (32, 15)
    tile = choose_tile(n, c, vector, entries=entries, warps=4, together=together, many=many)
    return tile._replace(programs=min(tile.programs, MOST_PROGRAMS))


@lru_cache(maxsize=1024)
def ready_tile(n: int, c: int, vector: int, many: int) -> Ready:
    """Rows of one tile, read once and their gradient written."""
    if c <= LONGEST_TILE:
        entries, warps, together = (4, 4, 8) if c <= FEW else (32, 2, 12)
        tile = choose_tile(n, c, vector, entries=entries, warps=warps, together=together, many=many)
        return Ready(tile._replace(programs=min(tile.programs, MOST_PROGRAMS)), again=False)
    warps = 16
    width = 32 * warps * vector
    pieces = max(1, triton.next_power_of_2(c) // width)
    return Ready(Tile(pieces, 1, width, warps, max(1, min(n, many))), again=True, stages=2)


@lru_cache(maxsize=1024)
def backward_tile(n: int, c: int, vector: int, many: int) -> Tile:
    """A map without sums; tiles of long rows are blocks of their own."""
    entries = 4 if c <= FEW else 16
    tile = choose_tile(n, min(c, 2_048), vector, entries=entries, warps=4, together=0, many=many)
    return tile._replace(programs=tile.programs * triton.cdiv(c, tile.s * tile.w))


@lru_cache(maxsize=1024)
def statistics_tile(n: int, c: int, vector: int, many: int) -> Tile:
    """Sums over rows: a program keeps its classes' sums and goes through its rows."""
    if c <= LONGEST_TILE:
        entries, warps, together = (4, 4, 4) if c <= FEW else (32, 2, 12)
        tile = choose_tile(n, c, vector, entries=entries, warps=warps, together=together, many=many)
        # Each program leaves a line of 2 · C sums.
        return tile._replace(programs=min(tile.programs, max(many, MOST_SUMS // c)))
    tile = Tile(1, 4, 512, 4, 1)
    lines = max(1, many * 8 // triton.cdiv(c, 512))
    return tile._replace(programs=min(lines, triton.cdiv(n, 4)))


@lru_cache(maxsize=1024)
def batch_backward_tile(n: int, c: int, vector: int, many: int) -> Tile:
    """A sum over the row first: rows of one tile stay in registers."""
    if c <= LONGEST_TILE:
        entries = 4 if c <= FEW else 16
        return choose_tile(n, c, vector, entries=entries, warps=4, together=8, many=many)
    return Tile(1, 4, 1_024, 8, min(triton.cdiv(n, 4), many * 4))


@lru_cache(maxsize=1024)
def long_lanes(n: int, element_size: int, many: int) -> Lanes:
    """A long row is one program's; several on a multiprocessor hide each other's waiting."""
    v = 16 // element_size
    return Lanes(4_096 // v, v, 8, min(n, many * 4, MOST_PROGRAMS))


@lru_cache(maxsize=1024)
def wide_lanes(n: int, c: int, element_size: int, many: int) -> Lanes | None:
    """One program a multiprocessor keeps a number of each class; None: too few rows or too long."""
    v = 16 // element_size
    if n < 4 * many or c > MOST_PARTS * LONGEST_TILE:
        return None
    return Lanes(LONGEST_TILE // v, v, 16, many)


class Plan:
    """A kernel laid over one shape: its grid, the numbers and constants that it is given.

    A plan is made for tensors of certain types; what starts the compiled kernel stays with it.
    """

    __slots__ = ("arguments", "constants", "direct", "grid", "kernel", "start", "warps")

    def __init__(
        self,
        kernel: Any,
        grid: tuple[int, int, int],
        numbers: tuple[int | float, ...],
        constants: tuple[int | bool, ...],
        warps: int,
    ) -> None:
        self.kernel, self.grid, self.warps, self.constants = kernel, grid, warps, constants
        self.arguments = (*numbers, *constants)
        # Numbers of more than 32 bits have another type: Triton is to see them every time.
        self.direct = DIRECT and max(numbers) < 2**31 and min(numbers) >= -(2**31)
        self.start: Callable[[list[int]], None] | None = None


def start(kernel: Any, grid: tuple[int, ...], *arguments: Any, **numbers: Any) -> None:
    """Starts a kernel by Triton itself; compiles it only if the first tensor has no data."""
    if arguments[0].is_meta:
        kernel.warmup(*arguments, grid=grid, **numbers)
    else:
        kernel[grid](*arguments, **numbers)


class _Loader(ThreadPoolExecutor):
    """Compiles kernels and loads them, which in Triton 3.6 calls a C compiler for each."""

    def submit(self, compile_: Callable[[], Any]) -> Future[Any]:  # type: ignore[override]
        def load() -> Any:
            compiled = compile_()
            compiled.run  # noqa: B018 - loads it
            return compiled

        return super().submit(load)


@contextmanager
def compiling(device: torch.device) -> Iterator[None]:
    """Compiles what is started inside without data for a GPU: side by side, and done at the end."""
    if INTERPRETED:  # nothing is compiled
        yield
        return
    with torch.cuda.device(device):
        here = torch.cuda.current_device()  # which is another in a new thread
        with (
            _Loader(initializer=torch.cuda.set_device, initargs=(here,)) as pool,
            triton.AsyncCompileMode(pool),
        ):
            yield


def launch(plan: Plan, *tensors: Tensor) -> None:
    """Starts a kernel; its parameters are tensors, then numbers, then constants.

    It is compiled only, as by `start`, if the first tensor has no data.
    """
    addresses = [*map(address_of, tensors)]
    aligned = not reduce(or_, addresses) & 15  # compiled for pointers that are multiples of 16
    if aligned and plan.start is not None and addresses[0]:
        plan.start(addresses)
        return
    if tensors[0].is_meta:
        plan.kernel.warmup(*tensors, *plan.arguments, grid=plan.grid, num_warps=plan.warps)
        return
    index = tensors[0].device.index
    with torch.cuda.device(index) if index is not None else nullcontext():
        compiled = plan.kernel[plan.grid](*tensors, *plan.arguments, num_warps=plan.warps)
    if aligned and plan.direct:
        plan.start = _starter(plan, compiled, index)


def _starter(plan: Plan, compiled: Any, index: int | None) -> Callable[[list[int]], None]:
    """Returns what starts a compiled kernel without Triton's search for it and without its hooks.

    It takes addresses: for a tensor Triton would ask the driver whether it is the device's.
    """
    run, function, metadata = compiled.run, compiled.function, compiled.packed_metadata
    stream_of = triton.runtime.driver.active.get_current_stream
    (x, y, z), arguments = plan.grid, plan.arguments

    def start(addresses: list[int]) -> None:
        stream = stream_of(index)
        run(x, y, z, stream, function, metadata, None, None, None, *addresses, *arguments)

    def start_there(addresses: list[int]) -> None:
        if index == torch.cuda.current_device():
            start(addresses)
            return
        with torch.cuda.device(index):
            start(addresses)

    return start if index is None or torch.cuda.device_count() == 1 else start_there


class _Counters:
    """Zeroed counters of one device: a slot belongs to one stream, or to one captured launch.

    A kernel leaves its counter at 0. Launches of a stream follow each other, and so do replays of a
    graph, so that none meets another's count.
    """

    def __init__(self, device: torch.device) -> None:
        pool = torch.zeros(4 * SLOTS, dtype=torch.int32, device=device)  # 16 bytes each
        torch.cuda.synchronize(device)  # other streams find the zeros, too
        self.free = iter(torch.split(pool, 4))
        self.of_stream: dict[int, Tensor | None] = {}

    def take(self, stream: int) -> Tensor | None:
        """Returns the stream's counter, None if there is no slot left."""
        found = self.of_stream.get(stream)
        if found is None:
            found = next(self.free, None)
            if found is not None:
                self.of_stream[stream] = found
        return found


_counters: dict[torch.device, _Counters] = {}


def counter(x: Tensor) -> Tensor:
    """Returns a counter at 0, without a launch to set it where one is at hand."""
    found: Tensor | None = None
    if x.is_cuda:
        capturing = torch.cuda.is_current_stream_capturing()
        counters = _counters.get(x.device)
        if counters is None and not capturing:
            counters = _counters[x.device] = _Counters(x.device)
        if counters is not None and capturing:
            found = next(counters.free, None)
        elif counters is not None:
            found = counters.take(triton.runtime.driver.active.get_current_stream(x.device.index))
    return x.new_zeros(1, dtype=torch.int32) if found is None else found
