"""An external driver: the host chip's table with a change."""

import subprocess
from pathlib import Path

from tools.repository import CORE

HOST = CORE / "src/isthmus/drivers/host/libisthmus_host.so"

# A library that returns the host chip's table, changed by EDIT.
SOURCE = r"""
#define ISTHMUS_DRIVER_IMPLEMENTATION
#include "driver.h"
#include <dlfcn.h>
#include <string.h>

static isthmus_driver table;
static isthmus_status fail_to_start(void) { return ISTHMUS_DEVICE_ERROR; }
static isthmus_status cannot_count_yet(int32_t *count) { (void)count; return ISTHMUS_NOT_READY; }
static isthmus_status (*initialize)(void), (*device_count)(int32_t *);
static int initialized;
static isthmus_status note_initialize(void) { initialized = 1; return initialize(); }
static isthmus_status count_when_initialized(int32_t *found) {
  return initialized ? device_count(found) : ISTHMUS_NOT_READY;
}
static isthmus_status (*create)(const isthmus_unique_id *, const isthmus_comm_options *, isthmus_comm *);
static isthmus_status refuse_rank_1(const isthmus_unique_id *id, const isthmus_comm_options *options,
                                    isthmus_comm *comm) {
  return options->rank == 1 ? ISTHMUS_UNSUPPORTED : create(id, options, comm);
}
static isthmus_comm lost;
static isthmus_status (*send)(const void *, size_t, isthmus_dtype, int32_t, isthmus_comm, isthmus_stream);
static isthmus_status (*comm_error)(isthmus_comm);
static isthmus_status lose_rank_1(const void *data, size_t count, isthmus_dtype dtype, int32_t peer,
                                  isthmus_comm comm, isthmus_stream stream) {
  if (peer != 1) return send(data, count, dtype, peer, comm, stream);
  lost = comm;
  return ISTHMUS_PEER_LOST;
}
static isthmus_status error_of_lost(isthmus_comm comm) {
  return comm == lost ? ISTHMUS_PEER_LOST : comm_error(comm);
}
static isthmus_status failure_of_lost(isthmus_comm comm, isthmus_comm_failure *failure) {
  failure->rank = comm == lost ? 1 : -1;
  failure->process = comm == lost ? 4242 : 0;
  failure->operation = 0;
  return ISTHMUS_OK;
}
static const char *reason(void) { return "the board is not powered; switch it on"; }

__attribute__((visibility("default"))) const isthmus_driver *isthmus_driver_get(uint32_t version) {
  void *host = dlopen(HOST, RTLD_NOW | RTLD_LOCAL);
  isthmus_driver_get_fn get = (isthmus_driver_get_fn)dlsym(host, ISTHMUS_DRIVER_SYMBOL);
  const isthmus_driver *original = get(version);
  memcpy(&table, original, sizeof table);
  table.struct_size = sizeof table;
  table.version = ISTHMUS_DRIVER_VERSION;
  table.name = "outside";
  (void)fail_to_start;
  (void)cannot_count_yet;
  (void)note_initialize;
  (void)count_when_initialized;
  (void)reason;
  (void)refuse_rank_1;
  (void)lose_rank_1;
  (void)error_of_lost;
  (void)failure_of_lost;
  initialize = original->initialize;
  device_count = original->device_count;
  create = original->comm_create;
  send = original->send;
  comm_error = original->comm_error;
  EDIT
  return &table;
}
"""


def build(folder: Path, edit: str, headers: Path = CORE / "csrc") -> str:
    """Compile the library with a C statement that changes ``table``, and return its path.

    Args:
        folder: of the library.
        edit: the statement.
        headers: folder with the driver.h of this version or of an earlier one.
    """
    source, library = folder / "driver.c", folder / "liboutside.so"
    source.write_text(SOURCE.replace("EDIT", edit))
    flags = ["-shared", "-fPIC", f"-I{headers}", f'-DHOST="{HOST}"', "-ldl"]
    subprocess.run(["cc", str(source), "-o", str(library), *flags], check=True)
    return str(library)
