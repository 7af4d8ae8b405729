"""Cases of graphs: what is captured, when it runs, what may not be captured."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from isthmus.conformance.device import Device
from isthmus.conformance.driver.case import (
    HOST_FUNCTIONS,
    Cases,
    allocate_pinned,
    copy_in,
    copy_out,
    gate,
    require,
    require_bytes,
    require_status,
    scratch,
)
from isthmus.conformance.driver.collectives import FLOAT32, SUM, Rank, on_each_rank, values
from isthmus.drivers.interface import CopyKind, Status

CASES = Cases()
NBYTES = (1 << 20) + 1
COUNT = 1003


@contextmanager
def graph_of(device: Device, stream: int) -> Iterator[list[int]]:
    """Capture the stream in the block; the list then holds the graph, which the case destroys."""
    device.driver.graph_begin(stream)
    graph: list[int] = []
    yield graph
    graph.append(device.driver.result_of("graph_end", stream))


def run(device: Device, graph: list[int], stream: int) -> None:
    """Launch a graph and wait for it."""
    device.driver.graph_launch(graph[0], stream)
    device.driver.stream_synchronize(stream)


@CASES.case("graph_begin")
def kept(device: Device) -> None:
    """Captured work does not run at once; it runs at each launch, on any stream, in the order of its capture."""
    driver = device.driver
    with scratch(device, NBYTES, NBYTES, streams=2) as (stream, other, first, second):
        driver.set_async(first, 1, NBYTES, stream)
        driver.set_async(second, 1, NBYTES, stream)
        driver.stream_synchronize(stream)
        with graph_of(device, stream) as graph:
            driver.set_async(first, 7, NBYTES, stream)
            driver.copy_async(second, first, NBYTES, CopyKind.DEVICE_TO_DEVICE, stream)
            driver.set_async(first, 9, NBYTES, stream)
        driver.stream_synchronize(stream)
        require_bytes(device.read(first, NBYTES), 1, "before the first launch")
        for used in (stream, other, 0):
            driver.set_async(second, 1, NBYTES, used)
            run(device, graph, used)
            require_bytes(device.read(first, NBYTES), 9, "after a launch")
            require_bytes(device.read(second, NBYTES), 7, "the copy, after a launch")
        driver.graph_destroy(graph[0])


@CASES.case("graph_launch")
def ordered(device: Device) -> None:
    """A launch runs after earlier work of its stream and before later work."""
    driver = device.driver
    with scratch(device, NBYTES, NBYTES) as (stream, source, target):
        with graph_of(device, stream) as graph:
            driver.copy_async(target, source, NBYTES, CopyKind.DEVICE_TO_DEVICE, stream)
        for value in (3, 4, 5):
            driver.set_async(source, value, NBYTES, stream)
            driver.graph_launch(graph[0], stream)
            driver.set_async(source, 0, NBYTES, stream)
            driver.stream_synchronize(stream)
            require_bytes(device.read(target, NBYTES), value, "after a launch between two fills")
        driver.set_async(source, 6, NBYTES, stream)
        driver.graph_launch(graph[0], stream)
        driver.graph_destroy(graph[0])
        driver.stream_synchronize(stream)
        require_bytes(device.read(target, NBYTES), 6, "when the graph was destroyed after its launch")


@CASES.case("graph_launch", HOST_FUNCTIONS)
def enqueued(device: Device) -> None:
    """graph_launch() only enqueues: it does not wait for earlier work of its stream."""
    driver = device.driver
    with scratch(device, NBYTES) as (stream, address):
        driver.set_async(address, 1, NBYTES, stream)
        with graph_of(device, stream) as graph:
            driver.set_async(address, 2, NBYTES, stream)
        with gate(driver, stream):
            driver.graph_launch(graph[0], stream)
            require(driver.status("stream_query", stream) == Status.NOT_READY, "it waited for earlier work")
        driver.stream_synchronize(stream)
        require_bytes(device.read(address, NBYTES), 2, "after the launch")
        driver.graph_destroy(graph[0])


@CASES.case("graph_launch")
def pinned_memory(device: Device) -> None:
    """A launch reads and writes pinned memory as it is then, not as it was at the capture."""
    driver = device.driver
    with (
        scratch(device, NBYTES) as (stream, address),
        allocate_pinned(driver, NBYTES) as read,
        allocate_pinned(driver, NBYTES) as written,
    ):
        read[:] = 1
        with graph_of(device, stream) as graph:
            copy_in(driver, address, read, stream)
            copy_out(driver, written, address, stream)
        for value in (2, 3):
            read[:], written[:] = value, 0
            run(device, graph, stream)
            require_bytes(written, value, "after a launch")
        driver.graph_destroy(graph[0])


@CASES.case("graph_begin")
def forked(device: Device) -> None:
    """A stream that waits for an event of the capture joins it, and has left it after graph_end()."""
    driver = device.driver
    with scratch(device, NBYTES, NBYTES, streams=2, events=2) as (stream, side, fork, join, first, second):
        driver.set_async(second, 1, NBYTES, stream)
        driver.stream_synchronize(stream)
        with graph_of(device, stream) as graph:
            driver.set_async(first, 8, NBYTES, stream)
            driver.event_record(fork, stream)
            driver.stream_wait_event(side, fork)
            ids = [driver.result_of("graph_capturing", used) for used in (stream, side, 0)]
            require(ids[0] == ids[1] != 0 == ids[2], f"the captures of three streams are {ids}")
            driver.copy_async(second, first, NBYTES, CopyKind.DEVICE_TO_DEVICE, side)
            driver.event_record(join, side)
            driver.stream_wait_event(stream, join)
            driver.set_async(first, 2, NBYTES, stream)
        require(driver.result_of("graph_capturing", side) == 0, "the side stream is still captured")
        driver.stream_synchronize(side)
        require_bytes(device.read(second, NBYTES), 1, "before the launch")
        run(device, graph, side)
        require_bytes(device.read(first, NBYTES), 2, "after the launch")
        require_bytes(device.read(second, NBYTES), 8, "the copy of the side stream, after the launch")
        driver.graph_destroy(graph[0])


@CASES.case("graph_end")
def unjoined(device: Device) -> None:
    """graph_end() fails if work of a stream that joined was not waited for; the capture ends all the same."""
    driver = device.driver
    with scratch(device, NBYTES, streams=2, events=1) as (stream, side, fork, address):
        driver.graph_begin(stream)
        driver.event_record(fork, stream)
        driver.stream_wait_event(side, fork)
        driver.set_async(address, 8, NBYTES, side)
        require_status(driver, Status.INVALID_ARGUMENT, "graph_end", stream, ctypes.byref(ctypes.c_void_p()))
        for used in (stream, side):
            require(driver.result_of("graph_capturing", used) == 0, "a stream is still captured")
            driver.stream_synchronize(used)


@CASES.case("graph_begin")
def refused(device: Device) -> None:
    """Calls that wait for captured work, or make it wait for other work, are refused, as is the default stream."""
    driver = device.driver
    host = np.zeros(NBYTES, np.uint8)
    with scratch(device, NBYTES, events=2) as (stream, event, outside, address):
        driver.event_record(outside, 0)
        require_status(driver, Status.INVALID_ARGUMENT, "graph_begin", 0)
        with graph_of(device, stream) as graph:
            driver.event_record(event, stream)
            calls = {
                "graph_begin": (stream,),
                "stream_synchronize": (stream,),
                "stream_query": (stream,),
                "event_synchronize": (event,),
                "event_query": (event,),
                "stream_wait_event": (stream, outside),
                "copy_async": (address, host.ctypes.data, NBYTES, CopyKind.HOST_TO_DEVICE, stream),
            }
            for name, arguments in calls.items():
                require_status(driver, Status.INVALID_ARGUMENT, name, *arguments)
        driver.graph_destroy(graph[0])
        driver.stream_synchronize(stream)


@CASES.case("graph_launch", "comm_unique_id")
@on_each_rank
def collective(here: Rank) -> None:
    """A captured collective runs on all ranks at each launch."""
    driver = here.driver
    target = here.place(values(here.rank, COUNT))
    driver.graph_begin(here.stream)
    driver.all_reduce(target, target, COUNT, FLOAT32, SUM, None, here.comm, here.stream)
    graph = driver.result_of("graph_end", here.stream)
    whole = sum(values(rank, COUNT) for rank in range(here.world))
    here.require(target, values(here.rank, COUNT), "before the launch")
    for i in range(3):
        driver.graph_launch(graph, here.stream)
        here.require(target, (whole * here.world**i).astype(np.float32), f"after launch {i}")
    driver.graph_destroy(graph)
