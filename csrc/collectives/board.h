// How far each rank of a group is, in the store: what tells, when an operation does not end, who did not
// come.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace isthmus {

class Board : public std::enable_shared_from_this<Board> {
 public:
  Board(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, std::chrono::milliseconds timeout);

  // This rank has enqueued an operation, the collective of the number where it is one; operation lives for
  // ever. From the first on, a thread of the process publishes the last, ten times in a timeout.
  void note(uint64_t number, const char* operation) noexcept;
  // Publishes what was noted, where that is due or at once.
  void publish(bool at_once);
  // What the ranks had last enqueued that had not come to the collective of the number, or that have fallen
  // silent; of one rank only where peer is not -1. Asks the store for a short while only.
  std::string absent(uint64_t number, int peer) const;

 private:
  std::string key(int rank) const { return "chip/at/" + std::to_string(rank); }
  std::string read(uint64_t number, int peer) const;
  std::string describe(int rank, uint64_t number) const;

  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_, size_;
  const std::chrono::milliseconds interval_;
  std::atomic<uint64_t> number_{0};
  std::atomic<const char*> operation_{nullptr};
  std::mutex publishing_;
  std::chrono::steady_clock::time_point published_{};
};

}  // namespace isthmus
