// Memory of other processes.
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "ledger.h"
#include "parts.h"
#include "runtime.h"

namespace isthmus::npu {
namespace {

constexpr size_t kKeyBytes = 65;  // size of a key of aclrtIpcMemGetExportKey

// Contents of an exported handle.
struct Exported {
  char key[kKeyBytes];
  uint64_t bytes;
};
static_assert(sizeof(Exported) <= ISTHMUS_IPC_HANDLE_BYTES);

std::mutex mutex;
std::map<void*, std::string> keys;  // keys of imported memory

isthmus_status memory_export(void* pointer, isthmus_ipc_handle* handle) {
  return call_on_device([&] {
    const size_t bytes = ledger().size(pointer);
    require(bytes != 0, "memory_export: the address was not returned by memory_allocate()");
    Exported exported{};
    exported.bytes = bytes;
    ISTHMUS_ACL_NEWER(rtIpcMemGetExportKey, pointer, bytes, exported.key, sizeof(exported.key), 0);
    isthmus_ipc_handle whole{};
    std::memcpy(whole.bytes, &exported, sizeof(exported));
    *handle = whole;
    return ISTHMUS_OK;
  });
}

isthmus_status memory_import(const isthmus_ipc_handle* handle, void** pointer) {
  return call_on_device([&] {
    Exported exported{};
    std::memcpy(&exported, handle->bytes, sizeof(exported));
    void* found = nullptr;
    ISTHMUS_ACL_NEWER(rtIpcMemImportByKey, &found, exported.key, 0);
    {
      const std::lock_guard<std::mutex> lock(mutex);
      keys[found] = std::string(exported.key, sizeof(exported.key));
    }
    ledger().add(found, {exported.bytes, {ISTHMUS_MEMORY_DEVICE, current_device()}});
    *pointer = found;
    return ISTHMUS_OK;
  });
}

isthmus_status memory_close(void* pointer) {
  return call_on_device([&] {
    std::string key;
    {
      const std::lock_guard<std::mutex> lock(mutex);
      const auto node = keys.extract(pointer);
      require(!node.empty(), "memory_close: the address was not returned by memory_import()");
      key = node.mapped();
    }
    ledger().remove(pointer, ISTHMUS_MEMORY_DEVICE);
    ISTHMUS_ACL_NEWER(rtIpcMemClose, key.data());
    return ISTHMUS_OK;
  });
}

}  // namespace

void add_sharing_functions(isthmus_driver& table) {
  table.memory_export = memory_export;
  table.memory_import = memory_import;
  table.memory_close = memory_close;
}

}  // namespace isthmus::npu
