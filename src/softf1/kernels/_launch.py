"""How kernels are laid out over rows × classes, and how they are launched.

At every call, Triton looks up the compiled kernel by all arguments, which takes longer than a small
kernel runs. Here a `Plan`, made once per shape, remembers its compiled kernel and launches it
directly. That uses a private interface of Triton, so it is done for the versions in `KNOWN` only;
with other versions, Triton launches the kernels in its usual way.

Compiling a kernel takes about a second, most of it outside Python: `compiling` compiles many
kernels in parallel, in threads that go on when the block ends. A kernel that is given tensors
without data (device "meta") is compiled but not run; its first launch waits until it is ready.
"""

from __future__ import annotations

import os
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import lru_cache, reduce
from operator import or_
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import triton

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
KNOWN = ((3, 6), (3, 9))  # 3.6 was run on a GPU; of 3.9 the source was read
DIRECT = tuple(map(int, triton.__version__.split(".")[:2])) in KNOWN and not INTERPRETED
MOST_PROGRAMS = 2_048  # of a kernel whose last program adds up the sums of all programs
LONGEST_TILE = 8_192  # classes of one tile; longer rows are read in several parts
FEW = 16  # up to so many classes, at most four threads share a row
MOST_SUMS = 2**18  # limit of classes × programs; one program per multiprocessor is always allowed
MOST_PARTS = 4  # parts of a row, a tile each, that a program of `_softmax_batch_long` can handle
SLOTS = 4_096  # counters per device
THREADS = 6  # that compile; with more, the main thread waits longer for its turn in Python

address_of = torch.Tensor.data_ptr


class Tile(NamedTuple):
    """n rows of s pieces of w classes each; the warps of a program, and the number of programs."""

    s: int
    n: int
    w: int
    warps: int
    programs: int


class Lanes(NamedTuple):
    """A part of a long row, `lanes` × `v` classes; v classes are loaded at once (16 bytes)."""

    lanes: int
    v: int
    warps: int
    programs: int


class Shape(NamedTuple):
    """What a plan depends on: logits (n, c) with their strides and dtype, labels' dtype, device."""

    n: int
    c: int
    stride_n: int
    stride_c: int
    dtype: torch.dtype
    labels: torch.dtype
    device: torch.device

    @property
    def element_size(self) -> int:
        """Bytes per logit."""
        return self.dtype.itemsize

    @property
    def vector(self) -> int:
        """How many neighbouring logits can be loaded at once, up to 16 bytes."""
        if self.stride_c != 1:
            return 1
        together = 16 // self.element_size | self.c | (self.stride_n if self.n > 1 else 0)
        return together & -together

    @property
    def many(self) -> int:
        """The number of multiprocessors."""
        return processors(self.device)


def kind_of(x: Tensor, target: Tensor) -> tuple[Any, ...]:
    """Returns all that plans depend on, as a key for caches; `shape_of` unpacks it."""
    return x.shape, x.stride(), x.dtype, x.device, target.dtype, target.stride()


def shape_of(kind: tuple[Any, ...]) -> tuple[Shape, tuple[int, ...]]:
    """Returns the shape, and the strides of the target."""
    (n, c), (stride_n, stride_c), dtype, device, labels, strides = kind
    return Shape(n, c, stride_n, stride_c, dtype, labels, device), strides


@lru_cache(maxsize=32)
def processors(device: torch.device) -> int:
    """Returns how many multiprocessors the device has; 2 for the interpreter."""
    if device.type != "cuda":
        return 2
    return torch.cuda.get_device_properties(device).multi_processor_count


def choose_tile(
    n: int, c: int, vector: int, *, entries: int, warps: int, together: int, many: int
) -> Tile:
    """Returns a tile for logits (n, c); a row longer than `LONGEST_TILE` takes several.

    Args:
        n: Rows.
        c: Classes.
        vector: Logits that are loaded at once.
        entries: Logits of one row per thread.
        warps: Least number of warps per program.
        together: Programs per multiprocessor; 0 gives each tile of rows its own program.
        many: Number of multiprocessors.
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
    """Returns the smallest of 128, 512, 2,048, … that is not below `numbers`.

    Kernels are compiled for each such size: with few sizes, batches of many lengths share them.

    >>> [room_for(n) for n in (1, 128, 129, 2048)]
    [128, 128, 512, 2048]
    """
    room = 128
    while room < numbers:
        room *= 4
    return room


@lru_cache(maxsize=1024)
def forward_tile(n: int, c: int, vector: int, many: int) -> Tile:
    """Forward, rows of one tile: a thread takes up to 32 classes, so that few share a row."""
    entries, together = (4, 8) if c <= FEW else (32, 15)
    tile = choose_tile(n, c, vector, entries=entries, warps=4, together=together, many=many)
    return tile._replace(programs=min(tile.programs, MOST_PROGRAMS))


@lru_cache(maxsize=1024)
def ready_tile(n: int, c: int, vector: int, many: int) -> Tile:
    """Forward that also writes the gradient: rows of one tile, read once."""
    entries, warps, together = (4, 4, 8) if c <= FEW else (32, 2, 12)
    tile = choose_tile(n, c, vector, entries=entries, warps=warps, together=together, many=many)
    return tile._replace(programs=min(tile.programs, MOST_PROGRAMS))


@lru_cache(maxsize=1024)
def backward_tile(n: int, c: int, vector: int, many: int) -> Tile:
    """Backward at example level: no sums over a row, so each tile of a long row is independent."""
    entries = 4 if c <= FEW else 16
    tile = choose_tile(n, min(c, 2_048), vector, entries=entries, warps=4, together=0, many=many)
    return tile._replace(programs=tile.programs * triton.cdiv(c, tile.s * tile.w))


@lru_cache(maxsize=1024)
def statistics_tile(n: int, c: int, vector: int, many: int) -> Tile:
    """Sums over rows at batch level: a program loops over its rows and keeps sums per class."""
    if c <= LONGEST_TILE:
        entries, warps, together = (4, 4, 4) if c <= FEW else (32, 2, 12)
        tile = choose_tile(n, c, vector, entries=entries, warps=warps, together=together, many=many)
        # Each program writes a line of 2 · C sums.
        return tile._replace(programs=min(tile.programs, max(many, MOST_SUMS // c)))
    tile = Tile(1, 4, 512, 4, 1)
    lines = max(1, many * 8 // triton.cdiv(c, 512))
    return tile._replace(programs=min(lines, triton.cdiv(n, 4)))


@lru_cache(maxsize=1024)
def batch_backward_tile(n: int, c: int, vector: int, many: int) -> Tile:
    """Backward at batch level, which needs a sum over the row: a row of one tile is read once."""
    if c <= LONGEST_TILE:
        entries = 4 if c <= FEW else 16
        return choose_tile(n, c, vector, entries=entries, warps=4, together=8, many=many)
    return Tile(1, 4, 1_024, 8, min(triton.cdiv(n, 4), many * 4))


@lru_cache(maxsize=1024)
def long_lanes(n: int, element_size: int, many: int) -> Lanes:
    """Long rows, one at a time per program; 4 programs per multiprocessor hide memory latency."""
    v = 16 // element_size
    return Lanes(4_096 // v, v, 8, min(n, many * 4, MOST_PROGRAMS))


@lru_cache(maxsize=1024)
def wide_lanes(n: int, c: int, element_size: int, many: int) -> Lanes | None:
    """Long rows at batch level; one program per multiprocessor holds a number of each class.

    None if there are too few rows or too many classes for that.
    """
    v = 16 // element_size
    if n < 4 * many or c > MOST_PARTS * LONGEST_TILE:
        return None
    return Lanes(LONGEST_TILE // v, v, 16, many)


class Plan:
    """A kernel laid out for one shape: its grid, and the numbers and constants it is called with.

    A plan serves tensors of the same dtypes only: it keeps the function that launches the compiled
    kernel.
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
        # Triton compiles another kernel for integers beyond 32 bits: let it choose at each call.
        self.direct = DIRECT and max(numbers) < 2**31 and min(numbers) >= -(2**31)
        self.start: Callable[[list[int]], None] | None = None


def start(kernel: Any, grid: tuple[int, ...], *arguments: Any, **numbers: Any) -> None:
    """Launches a kernel through Triton; if the first tensor has no data, only compiles it."""
    if arguments[0].is_meta:
        _note(kernel, kernel.warmup(*arguments, grid=grid, **numbers))
        return
    _wait(kernel)
    kernel[grid](*arguments, **numbers)


_coming: dict[int, list[Any]] = {}
"""What `compiling` has begun to compile, by the id of the kernel, until the kernel is launched."""

_turn = Lock()


def _note(kernel: Any, compiled: Any) -> None:
    if hasattr(compiled, "result"):
        _coming.setdefault(id(kernel), []).append(compiled)


def _wait(kernel: Any) -> None:
    if id(kernel) in _coming:  # until all is ready, so that other threads wait as well
        await_kernels(id(kernel))


def await_kernels(*kernels: int) -> None:
    """Waits for what is being compiled: of some kernels, by their ids, or of all.

    A variant that fails is left out: its launch compiles it again, and raises the error.
    """
    with _turn:
        for key in kernels or (*_coming,):
            for compiled in _coming.get(key, ()):
                compiled.result(ignore_errors=True)
            _coming.pop(key, None)


class _Queue:
    """Holds what is to be compiled; Triton takes it for an executor."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], Any], Future[Any]]] = []

    def submit(self, compile_: Callable[[], Any]) -> Future[Any]:
        """Adds a kernel."""
        self.jobs.append((compile_, Future()))
        return self.jobs[-1][1]

    def start(self, device: int) -> None:
        """Compiles and loads the kernels in threads; returns at once."""
        pool = ThreadPoolExecutor(THREADS)
        for compile_, future in self.jobs:
            try:
                pool.submit(_load, device, compile_, future)
            except RuntimeError as error:  # no more threads
                with suppress(InvalidStateError):
                    future.set_exception(error)
        pool.shutdown(wait=False)


def _load(device: int, compile_: Callable[[], Any], future: Future[Any]) -> None:
    try:
        torch.cuda.set_device(device)  # a thread starts with device 0
        compiled = compile_()
        compiled.run  # noqa: B018 - loads it, which calls a C compiler in Triton 3.6
    except BaseException as error:  # noqa: BLE001 - the launch compiles it again
        future.set_exception(error)
    else:
        future.set_result(compiled)


class _Mode(triton.AsyncCompileMode):  # type: ignore[misc]  # Triton has no types
    """Triton's, but the end of the block waits for nothing: `_wait` does."""

    def __exit__(self, *error: object) -> None:
        self.executor.start(torch.cuda.current_device())
        self.raw_futures.clear()
        super().__exit__(*error)


@contextmanager
def compiling(device: torch.device) -> Iterator[list[Any]]:
    """Compiles the kernels that are launched inside without data, in parallel, for this GPU.

    Threads begin when the block ends, since the block would have to share Python with them; so
    nothing may be launched with data inside. Yields the list of what they will compile; launching a
    kernel afterwards waits for it.
    """
    queue = _Queue()
    if INTERPRETED:  # nothing is compiled
        yield queue.jobs
        return
    with torch.cuda.device(device), _Mode(queue):
        yield queue.jobs


def launch(plan: Plan, *tensors: Tensor) -> None:
    """Launches a kernel; its parameters are tensors, then numbers, then constants.

    If the first tensor has no data, the kernel is only compiled, as by `start`.
    """
    addresses = [*map(address_of, tensors)]
    aligned = not reduce(or_, addresses) & 15  # Triton compiles for pointers divisible by 16
    if aligned and plan.start is not None and addresses[0]:
        plan.start(addresses)
        return
    if tensors[0].is_meta:
        how: dict[str, Any] = {"grid": plan.grid, "num_warps": plan.warps}
        _note(plan.kernel, plan.kernel.warmup(*tensors, *plan.arguments, **how))
        return
    _wait(plan.kernel)
    index = tensors[0].device.index
    with torch.cuda.device(index) if index is not None else nullcontext():
        compiled = plan.kernel[plan.grid](*tensors, *plan.arguments, num_warps=plan.warps)
    if aligned and plan.direct:
        plan.start = _starter(plan, compiled, index)


def _starter(plan: Plan, compiled: Any, index: int | None) -> Callable[[list[int]], None]:
    """Returns a function that launches a compiled kernel, without Triton's lookup and hooks.

    It takes addresses: for each tensor, Triton would ask the driver whether it is on the device.
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

    A kernel sets its counter back to 0. Launches on one stream run one after the other, and so do
    replays of a graph, so that two launches never use a counter at the same time.
    """

    def __init__(self, device: torch.device) -> None:
        pool = torch.zeros(4 * SLOTS, dtype=torch.int32, device=device)  # 16 bytes each
        torch.cuda.synchronize(device)  # other streams must see the zeros, too
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
    """Returns a counter that is 0; one from the pool, if free, needs no launch to zero it."""
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
