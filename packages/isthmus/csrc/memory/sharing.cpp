#include "memory/sharing.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "core/stream.h"
#include "memory/device_memory.h"
#include "memory/lease.h"
#include "memory/memory.h"

namespace isthmus::memory {
namespace {

bool can_share(const isthmus_driver& d) {
  return ISTHMUS_HAS(d, memory_export) && ISTHMUS_HAS(d, memory_import) && ISTHMUS_HAS(d, memory_close);
}

LeaseState row_of(const c10::Storage& table, int64_t row) {
  TORCH_CHECK_VALUE(table.device().is_cpu() && row >= 0 &&
                        static_cast<size_t>(row + 1) * 2 * sizeof(int64_t) <= table.nbytes(),
                    "lease ", row, " is outside a table of ", table.nbytes(), " bytes.");
  return LeaseState(static_cast<int64_t*>(table.mutable_data()) + 2 * row);
}

[[noreturn]] void throw_received() {
  TORCH_CHECK(
      false, "this tensor was already received; a chip tensor can be received once per send. Send it again.");
}

// ---- the sender

struct Sent {
  Lease lease;
  c10::Storage storage;
};

struct Sender {
  std::mutex mutex;
  std::vector<c10::Storage> tables;
  std::vector<Lease> free;
  std::vector<Sent> sent;
};

Sender& sender() {
  static Sender& instance = *new Sender;  // leaked: the storages' allocator may be gone at the end
  return instance;
}

// ---- the receiver

struct Mapping {
  void* const pointer;
  explicit Mapping(void* opened) : pointer(opened) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (!in_bad_fork()) static_cast<void>(driver_table()->memory_close(pointer));
  }
};

// Open allocations of other processes: a runtime may not open one twice.
struct Receiver {
  std::mutex mutex;
  std::map<std::pair<c10::DeviceIndex, std::string>, std::weak_ptr<Mapping>> open;
};

Receiver& receiver() {
  static Receiver& instance = *new Receiver;
  return instance;
}

std::shared_ptr<Mapping> open_mapping(c10::DeviceIndex device, const std::string& bytes) {
  isthmus_ipc_handle handle{};
  TORCH_CHECK_VALUE(bytes.size() == sizeof(handle.bytes), "the handle of an allocation has ",
                    sizeof(handle.bytes), " bytes, this one ", bytes.size(), ".");
  std::memcpy(handle.bytes, bytes.data(), sizeof(handle.bytes));
  const std::lock_guard<std::mutex> lock(receiver().mutex);
  std::weak_ptr<Mapping>& known = receiver().open[{device, bytes}];
  if (std::shared_ptr<Mapping> mapping = known.lock()) return mapping;
  static_cast<void>(device_memory(device));  // opens the CPU's window, where the device has one
  use_device(device);
  void* pointer = nullptr;
  check(driver().memory_import(&handle, &pointer), "import memory of another process");
  auto mapping = std::make_shared<Mapping>(pointer);
  known = mapping;
  return mapping;
}

struct Received {
  c10::DeviceIndex device;
  std::shared_ptr<Mapping> mapping;
  c10::Storage table;
  int64_t row;
};

void release_received(void* context) noexcept {
  const std::unique_ptr<Received> received(static_cast<Received*>(context));
  if (in_bad_fork()) return;
  try {
    synchronize_device(received->device);  // the sender may write there as soon as the lease is released
  } catch (const std::exception& error) {
    TORCH_WARN("memory of another process is released without waiting for the device: ", error.what());
  }
  {
    const std::lock_guard<std::mutex> lock(receiver().mutex);  // closed before it can be opened again
    received->mapping.reset();
    auto& open = receiver().open;
    for (auto it = open.begin(); it != open.end();)
      it = it->second.expired() ? open.erase(it) : std::next(it);
  }
  row_of(received->table, received->row).release();
}

}  // namespace

std::optional<Exported> export_storage(const c10::Storage& storage) {
  static_cast<void>(
      storage.mutable_data());  // a lazy clone gets memory of its own, which the other may write
  const c10::DataPtr& data = storage.data_ptr();
  if (!can_share(driver()) || data.get() == nullptr || data.get_deleter() != &release_block) return {};
  const c10::DeviceIndex device = storage.device().index();
  const std::optional<Segment> segment = device_memory(device).segment_of(data.get());
  if (!segment || segment->expandable >= 0) return {};
  synchronize_device(device);  // a queue sends in a thread of its own, without the current stream
  isthmus_ipc_handle handle{};
  check(driver().memory_export(reinterpret_cast<void*>(segment->address), &handle), "export memory");
  return Exported{{handle.bytes, sizeof(handle.bytes)},
                  reinterpret_cast<uintptr_t>(data.get()) - segment->address};
}

int64_t add_leases(const at::Tensor& table) {
  TORCH_CHECK_VALUE(table.is_cpu() && table.scalar_type() == at::kLong && table.is_contiguous() &&
                        table.dim() == 2 && table.size(1) == 2 && table.storage_offset() == 0,
                    "a table of leases must be an int64 CPU tensor with two columns.");
  Sender& s = sender();
  const std::lock_guard<std::mutex> lock(s.mutex);
  const auto number = static_cast<int64_t>(s.tables.size());
  s.tables.push_back(table.storage());
  for (int64_t row = table.size(0); row-- > 0;) s.free.push_back({number, row});
  return number;
}

std::optional<Lease> send_storage(const c10::Storage& storage) {
  Sender& s = sender();
  const std::lock_guard<std::mutex> lock(s.mutex);
  if (s.free.empty()) return {};
  const Lease lease = s.free.back();
  s.free.pop_back();
  row_of(s.tables[lease.table], lease.row).offer();
  storage.unsafeGetStorageImpl()->set_resizable(false);  // growing would move it out of the sent memory
  s.sent.push_back({lease, storage});
  return lease;
}

c10::Storage take_back(Lease lease) {
  Sender& s = sender();
  const std::lock_guard<std::mutex> lock(s.mutex);
  const auto found = std::find_if(s.sent.begin(), s.sent.end(), [lease](const Sent& each) {
    return each.lease.table == lease.table && each.lease.row == lease.row;
  });
  if (found == s.sent.end() || !row_of(s.tables[lease.table], lease.row).take(true)) throw_received();
  c10::Storage storage = std::move(found->storage);
  s.sent.erase(found);
  row_of(s.tables[lease.table], lease.row).release();
  s.free.push_back(lease);
  return storage;
}

int64_t collect_sent() {
  std::vector<Sent> over;  // freed after the lock: freeing may take other locks
  Sender& s = sender();
  const std::lock_guard<std::mutex> lock(s.mutex);
  const auto first = std::partition(s.sent.begin(), s.sent.end(), [&s](const Sent& each) {
    return !row_of(s.tables[each.lease.table], each.lease.row).is_over();
  });
  for (auto it = first; it != s.sent.end(); ++it) {
    s.free.push_back(it->lease);
    over.push_back(std::move(*it));
  }
  s.sent.erase(first, s.sent.end());
  return static_cast<int64_t>(over.size());
}

int64_t count_sent() {
  const std::lock_guard<std::mutex> lock(sender().mutex);
  return static_cast<int64_t>(sender().sent.size());
}

c10::Storage receive_storage(c10::DeviceIndex device, const Exported& exported, size_t bytes,
                             const at::Tensor& table, int64_t row, bool known_process) {
  check_device(device);
  TORCH_CHECK_NOT_IMPLEMENTED(can_share(driver()), "driver ", driver().name,
                              " cannot open memory of another process: it has no memory_import.");
  LeaseState lease = row_of(table.storage(), row);
  auto received = std::make_unique<Received>(
      Received{device, open_mapping(device, exported.handle), table.storage(), row});
  if (!lease.take(known_process)) throw_received();
  void* const pointer = static_cast<char*>(received->mapping->pointer) + exported.offset;
  c10::DataPtr data(pointer, received.release(), &release_received, c10::Device(kChip, device));
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes, std::move(data),
                                               /*allocator=*/nullptr, /*resizable=*/false);
}

void release_lease(const at::Tensor& table, int64_t row) {
  LeaseState lease = row_of(table.storage(), row);
  if (!lease.take(true)) throw_received();
  lease.release();
}

}  // namespace isthmus::memory
