// Memory of a device held by each process of this user.
//
// One small file per device in a folder of the user's own. Each process that allocates owns a slot of it: a
// byte count, and a lock on one byte of the file. The kernel drops the lock when the process ends, however it
// ends, so a slot without a lock is a dead process and its bytes count no more.
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

  // Adds bytes to this process's share if all shares together then fit the capacity. before is what was held.
  bool try_reserve(uint64_t bytes, Usage* before);
  void release(uint64_t bytes);
  Usage usage();
  // Gives the slot up.
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
