// How far each rank of a group is, in the store: what tells, when an operation does not end, who did not
// come.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
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
  void set_timeout(std::chrono::milliseconds timeout);
  // Where other ranks stand that the collective of the number waits for, or the peer where it is not -1:
  // those that have not come to it, or have fallen silent. Asks the store, as the next does, for a short
  // while only.
  std::string absent(uint64_t number, int peer);
  // Of the ranks, those that have come to fewer meetings than this one; came() says that this one has come to
  // one more.
  void came() noexcept;
  std::string missing();
  // From now on the process writes its flight record when a rank of the group asks for all.
  void answer_requests();
  // What another rank failed with before; else the others will hear of this failure.
  std::string first(const std::string& failure);

  // For the publisher.
  void answer();
  void request_records() noexcept;
  bool has_all_records() noexcept;  // or none will come

 private:
  static std::string meeting_key(int rank) { return "chip/met/" + std::to_string(rank); }
  static std::string record_key(int rank) { return "chip/record/" + std::to_string(rank); }
  std::string key(int rank) const { return "chip/at/" + std::to_string(rank); }
  std::string ask(std::function<std::string(const Board&)> question);
  std::string read(uint64_t number, int peer) const;
  std::string describe(int rank, uint64_t number) const;

  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_, size_;
  std::atomic<std::chrono::milliseconds> interval_;
  std::atomic<uint64_t> number_{0};
  std::atomic<const char*> operation_{nullptr};
  std::atomic<uint64_t> meetings_{0};
  bool has_answered_ = false;  // the publisher's, as the next
  std::chrono::steady_clock::time_point asked_{};
  std::mutex publishing_;
  std::chrono::steady_clock::time_point published_{};
};

// Writes this process's flight record, asks all ranks of its groups for theirs, and waits for them, for a
// short while only: the end of this rank is that of the job.
void write_records() noexcept;

}  // namespace isthmus
