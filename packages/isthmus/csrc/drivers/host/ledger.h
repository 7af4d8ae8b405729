// Memory of a device held by each process of this user.
//
// One small file per device in a private folder of the user. Each allocating process owns a slot: a byte
// count, and a lock on one byte of the file. The kernel releases the lock when the process exits for any
// reason, so a slot without a lock belongs to a dead process and its bytes no longer count.
#pragma once

#include <cstdint>
#include <string>

namespace isthmus::host {

class Ledger {
 public:
  struct Usage {
    uint64_t own, others;  // bytes reserved by this process, by all other living ones
  };

  // Opens or creates the file of the device. Devices are the same if index and capacity are.
  Ledger(int32_t device, uint64_t capacity);
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  // Adds bytes to this process's share if all shares then fit the capacity. before: bytes held until now.
  bool try_reserve(uint64_t bytes, Usage* before);
  void release(uint64_t bytes);
  Usage usage();
  // Frees the slot.
  void leave();

 private:
  struct Slot;
  struct File;

  void join();
  bool is_alive(int slot) const;
  Usage count();

  const uint64_t capacity_;
  std::string path_;
  int descriptor_ = -1;
  File* file_ = nullptr;
  int own_ = -1;  // this process's slot
};

}  // namespace isthmus::host
