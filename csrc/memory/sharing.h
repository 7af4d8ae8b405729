// Storages of the chip that other processes read and write, through the driver's export and import.
//
// For each storage that is sent there is a ticket in host memory that both processes map. Each ticket has one
// receiver, so its two words have one writer at a time: the sender hands it out, the receiver takes it and in
// the end returns it. Until then, or until the receiver is dead, the sender keeps the storage.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <optional>
#include <string>

namespace isthmus::memory {

// Where the bytes of a storage lie: in an allocation of the driver, at an offset.
struct Exported {
  std::string handle;
  size_t offset;
};

// Waits for the device's work. Nothing where the driver cannot export the memory: it lacks the functions, the
// memory is a mapping (expandable_segments) or is itself another process's.
std::optional<Exported> export_storage(const c10::Storage& storage);

// One ticket: a row of a table, which is an int64 tensor [n, 2] in shared memory.
struct Ticket {
  int64_t table;
  int64_t row;
};

// Adds a table of this process's tickets and returns its number.
int64_t add_tickets(const at::Tensor& table);
// Keeps the storage, which can be resized no more, until the ticket is returned. Nothing if all are in use.
std::optional<Ticket> send_storage(const c10::Storage& storage);
// What this process sent with the ticket; it comes back to the one who sent it. Throws if it has been
// received.
c10::Storage take_back(Ticket ticket);
// Frees what receivers have returned or died with; how many storages that were.
int64_t collect_sent();
int64_t count_sent();

// The storage that another process has sent. known_process: whether that process knows this one by its id;
// otherwise it cannot see it die. Throws if it was received before.
c10::Storage receive_storage(c10::DeviceIndex device, const Exported& exported, size_t bytes,
                             const at::Tensor& table, int64_t row, bool known_process);
// Of a storage that is here already.
void return_ticket(const at::Tensor& table, int64_t row);

}  // namespace isthmus::memory
