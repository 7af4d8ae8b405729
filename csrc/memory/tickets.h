// The state of a ticket for a storage that another process uses, as both processes read it.
#pragma once

#include <cstdint>

namespace isthmus::memory {

class TicketRow {
 public:
  explicit TicketRow(int64_t* words) : words_(words) {}

  void hand_out();
  // Called by the receiver; false if the ticket has been taken before.
  bool take(bool known_process);
  void give_back();
  // Called by the sender: whether the ticket was released, or the receiver is dead.
  bool is_over() const;

 private:
  int64_t* words_;  // who holds it, and since when that process runs
};

}  // namespace isthmus::memory
