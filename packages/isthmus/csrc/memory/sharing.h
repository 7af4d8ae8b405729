// Storages of the chip shared with other processes, through the driver's export and import.
//
// Each sent storage has a lease in host memory that both processes map. A lease has one receiver, so its two
// words have one writer at a time: the sender offers it, the receiver takes and finally releases it. The
// sender keeps the storage until then, or until the receiver is dead.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <optional>
#include <string>

namespace isthmus::memory {

// Location of a storage's bytes: a driver allocation and an offset.
struct Exported {
  std::string handle;
  size_t offset;
};

// Waits for the device's work. Empty if the driver cannot export the memory: it lacks the functions, or the
// memory is a mapping (expandable_segments) or belongs to another process.
std::optional<Exported> export_storage(const c10::Storage& storage);

// A lease: a row of a table, an int64 tensor [n, 2] in shared memory.
struct Lease {
  int64_t table;
  int64_t row;
};

// Adds a table of this process's leases and returns its number.
int64_t add_leases(const at::Tensor& table);
// Keeps the storage, now not resizable, until its lease is released. Empty if all leases are in use.
std::optional<Lease> send_storage(const c10::Storage& storage);
// Returns the storage of a lease to its own sender. Throws if it was received.
c10::Storage take_back(Lease lease);
// Frees the storages whose receivers have released them or died; returns their number.
int64_t collect_sent();
int64_t count_sent();

// The storage sent by another process. known_process: whether this process's id is valid in that process;
// otherwise it cannot detect this one's death. Throws if it was received before.
c10::Storage receive_storage(c10::DeviceIndex device, const Exported& exported, size_t bytes,
                             const at::Tensor& table, int64_t row, bool known_process);
// Releases the lease of a storage that is already mapped in this process.
void release_lease(const at::Tensor& table, int64_t row);

}  // namespace isthmus::memory
