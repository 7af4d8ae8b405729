"""Libraries compiled against earlier headers load and compute; see csrc/ABI.md.

headers/ has driver.h as of version 1.2, and the first revision of operators.h, whose version has always been 1.0. A
driver of version 1.0 is one of 1.2 that says it is smaller: the table has only grown at its end.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from isthmus.drivers import interface
from tests.helpers.children import output
from tests.helpers.native import compile_text
from tests.helpers.outside_driver import build
from tools.repository import ROOT

HEADERS = Path(__file__).parent / "headers"
DRIVER, OPERATORS = HEADERS / "driver-1.2", HEADERS / "operators-1.0"
SAMPLE = (ROOT / "examples/sample_chip/csrc/driver.cpp").read_text()
LATEST = ("comm_id_bytes", "comm_reduces")  # since 1.3

# relu of contiguous float32 tensors in the calling thread, with the arguments unpacked by hand.
RELU = r"""
#define ISTHMUS_OPERATORS_IMPLEMENTATION
#include "operators.h"

static int relu(void* handle, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
  const isthmus_context* context = (const isthmus_context*)(uintptr_t)args[0].v_int64;
  const DLTensor *self = (const DLTensor*)args[1].v_ptr, *out = (const DLTensor*)args[2].v_ptr;
  int64_t elements = 1;
  for (int d = 0; d < self->ndim; ++d) elements *= self->shape[d];
  for (int64_t i = 0; i < elements; ++i) {
    const float x = ((const float*)self->data)[i];
    ((float*)out->data)[i] = x < 0 ? 0 : x;
  }
  result->type_index = kTVMFFIInt;
  result->v_int64 = handle || count != 3 || context->struct_size < sizeof(*context) ? ISTHMUS_INTERNAL : ISTHMUS_OK;
  return 0;
}

const isthmus_operator_library* isthmus_operators_get(uint32_t version) {
  static const isthmus_operator operators[] = {{"aten::relu", ISTHMUS_DTYPE(FLOAT32), 0, relu, 0}};
  static const isthmus_operator_library library = {
      sizeof(isthmus_operator_library), ISTHMUS_OPERATORS_VERSION, "first", "relu", sizeof(isthmus_operator), 1,
      operators};
  return version >> 16 == ISTHMUS_OPERATORS_VERSION_MAJOR ? &library : 0;
}
"""


def members(header: Path) -> list[str]:
    """Return the members of the driver's table, in order."""
    table = (
        header.read_text().partition("typedef struct isthmus_driver {")[2].partition("} isthmus_driver;")[0]
    )
    return re.findall(r"(?:\(\*|[\w*] )(\w+)(?:\)\(|;)", re.sub(r"/\*.*?\*/", "", table, flags=re.DOTALL))


def driver(folder: Path, version: str) -> Path:
    """Compile the driver of the sample chip, which has its own memory, streams and events, for a version."""
    source = SAMPLE
    if version == "1.0":
        source = source.replace("sizeof(table);", "offsetof(isthmus_driver, comm_reachable);", 1)
        source = source.replace("= ISTHMUS_DRIVER_VERSION;", "= 1u << 16;", 1)
        assert source.count("comm_reachable") == 1 and source.count("= 1u << 16;") == 1
    done = compile_text(source, folder / "libold.so", "c++17", first=DRIVER)
    assert done.returncode == 0, done.stderr
    return folder / "libold.so"


def test_the_table_has_only_grown_at_its_end() -> None:
    now = [name for name, *_ in interface.structure("driver")._fields_]
    assert tuple(now[-2:]) == LATEST
    assert members(DRIVER / "driver.h") == now[:-2]


@pytest.mark.parametrize("version", ["1.2", "1.0"])
def test_an_older_driver_computes(tmp_path: Path, version: str) -> None:
    printed = output(
        """
        import torch
        from isthmus import _C
        found = _C.driver()
        event = torch.chip.Event()
        x = torch.arange(6.0).reshape(2, 3).to("chip:1")
        with torch.chip.device(1), torch.chip.stream(torch.chip.Stream()):
            y = (x @ x.t()).relu().sum()
            event.record()
        event.synchronize()
        print(found["version"], y.item(), torch.chip.device_count(), found["functions"]["graph_begin"])
        """,
        ISTHMUS_DRIVER=str(driver(tmp_path, version)),
    )
    assert printed.splitlines()[-1] == f"{version} 83.0 2 False"


def test_an_older_driver_keeps_its_optional_functions(tmp_path: Path) -> None:
    """The host chip as of 1.2: delegate, collectives and graphs, without the functions of 1.3."""
    library = build(tmp_path, "", DRIVER)
    printed = output(
        """
        import torch, torch.distributed as dist
        from isthmus import _C
        found = _C.driver()
        dist.init_process_group("chip", store=dist.HashStore(), rank=0, world_size=1)
        x = torch.ones(4, device="chip", requires_grad=True)
        (x * 3).sum().backward()
        dist.all_reduce(x.grad)
        graph, static = torch.chip.Graph(), torch.zeros(2, device="chip")
        with torch.chip.graph(graph):
            static += 1
        graph.replay()
        torch.chip.synchronize()
        names = ("host_window", "comm_unique_id", "graph_begin", "comm_id_bytes", "comm_reduces")
        print(found["version"], x.grad.tolist(), static.tolist(), [found["functions"][name] for name in names])
        dist.destroy_process_group()
        """,
        ISTHMUS_DRIVER=library,
    )
    assert printed.splitlines()[-1] == "1.2 [3.0, 3.0, 3.0, 3.0] [1.0, 1.0] [True, True, True, False, False]"


def test_an_operator_library_of_the_first_revision_computes(tmp_path: Path) -> None:
    done = compile_text(RELU, tmp_path / "libfirst.so", first=OPERATORS)
    assert done.returncode == 0, done.stderr
    driver(tmp_path, "1.2")
    description = tmp_path / "driver.toml"
    description.write_text('name = "old"\nlibrary = "libold.so"\noperators = ["libfirst.so"]\n')
    printed = output(
        """
        import torch
        x = torch.tensor([[-1.0, 2.0], [3.0, -4.0]]).to("chip")
        print(torch.relu(x).tolist(), torch.chip.dispatch_stats()["operators"]["aten::relu"]["route"])
        """,
        ISTHMUS_DRIVER=str(description),
    )
    assert printed.splitlines()[-1] == "[[0.0, 2.0], [3.0, 0.0]] kernel"
