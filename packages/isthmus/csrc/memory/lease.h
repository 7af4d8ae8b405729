// State of a lease, by which another process uses a storage; both processes map it.
#pragma once

#include <cstdint>

namespace isthmus::memory {

class LeaseState {
 public:
  explicit LeaseState(int64_t* words) : words_(words) {}

  void offer();
  // Called by the receiver; false if the lease was taken before.
  bool take(bool known_process);
  void release();
  // Called by the sender: whether the lease was released or the receiver is dead.
  bool is_over() const;

 private:
  int64_t* words_;  // holder, and start time of its process
};

}  // namespace isthmus::memory
