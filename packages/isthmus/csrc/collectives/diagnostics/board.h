// The progress of each rank of a group, in the store. When an operation does not complete, it tells which
// ranks are missing.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "collectives/diagnostics/failure_report.h"
#include "collectives/diagnostics/waits.h"

namespace isthmus {

struct PublishedFailure {
  std::string message, json;
};

class Board : public std::enable_shared_from_this<Board> {
 public:
  // group: its name.
  Board(const c10::intrusive_ptr<c10d::Store>& store, std::string group, int rank, int size,
        std::chrono::milliseconds timeout);

  // Starts a thread of the process that publishes what this rank noted, and where the process waits, ten
  // times in a timeout; and it writes the flight record when a rank of the group requests all of them.
  void start();
  // Notes that this rank has enqueued an operation; number is that of the last collective, and operation a
  // string literal.
  void note(uint64_t number, const char* operation) noexcept;
  // Notes that this rank called an operation on CPU tensors in place of the chip's collective of this number.
  void note_on_cpu(uint64_t number, const char* operation) noexcept;
  // Publishes that an operation raised on this rank, in place of the collective of this number.
  void publish_refusal(uint64_t number, const char* operation, const std::string& error) noexcept;
  // Publishes this rank's state, if that is due or at_once.
  void publish(bool at_once);
  void set_timeout(std::chrono::milliseconds timeout);
  // Ranks that have not enqueued the collective of this number or have stopped publishing: of all ranks, or
  // of the peers alone if there are any. The details say where ranks wait instead; waits: of this process.
  // This and the following three ask the store, for a short time only.
  MissingRanks missing_from_collective(uint64_t number, const std::vector<int>& peers, const Waits& waits);
  // Messages of the ranks that raised in place of the collective; "" if none did.
  std::string refusals(uint64_t number);
  // Ranks that have arrived at fewer barriers than this one.
  MissingRanks missing_from_barrier();
  // The first failure of the group, if another rank published it; otherwise publishes this one, and returns
  // an empty one.
  PublishedFailure first_failure(const PublishedFailure& own);
  // Notes that this rank has arrived at a barrier.
  void arrive_at_barrier() noexcept;

  // Answers a request; called by the publisher.
  void answer();
  void request_records() noexcept;
  bool has_all_records() noexcept;  // or the store is gone

 private:
  static std::string barrier_key(int rank) { return "chip/barrier/" + std::to_string(rank); }
  static std::string record_key(int rank) { return "chip/record/" + std::to_string(rank); }
  std::string key(int rank) const { return "chip/at/" + std::to_string(rank); }
  // Number of the last collective of a group in this process, if it is a member.
  static std::optional<uint64_t> reached_in(const std::string& group);
  template <typename Answer>
  Answer ask(std::function<Answer(const Board&)> question, Answer (*without_store)(const char* why));
  // The last notice that a rank published.
  struct Notice {
    uint64_t number = 0;  // number of its last collective
    int64_t seconds = 0;  // when it was published; 0 if never
    std::string operation, on_cpu;
    uint64_t number_on_cpu = 0;
    Waits waits;
  };
  Notice read(int rank) const;
  // Describes a rank that is missing from the collective; "" if it is not missing.
  std::string describe(int rank, uint64_t number, const Notice& notice) const;
  // "; rank 1 raised in all_reduce #3: ..."; "" if it did not.
  std::string refusal(int rank, uint64_t number) const;

  static std::string refusal_key(int rank) { return "chip/refused/" + std::to_string(rank); }

  const c10::intrusive_ptr<c10d::Store> store_;
  const std::string group_;
  const int rank_, size_;
  std::atomic<std::chrono::milliseconds> interval_;
  std::atomic<uint64_t> number_{0};
  std::atomic<const char*> operation_{nullptr};
  std::atomic<uint64_t> number_on_cpu_{0};
  std::atomic<const char*> on_cpu_{nullptr};
  std::atomic<uint64_t> barriers_{0};
  bool has_answered_ = false;  // used by the publisher only, as asked_
  std::chrono::steady_clock::time_point asked_{};
  std::mutex publishing_;
  std::chrono::steady_clock::time_point published_{};
};

// Writes this process's flight record, requests those of all ranks of its groups, and waits for them for a
// short time: when this rank exits, the job ends.
void write_records() noexcept;

}  // namespace isthmus
