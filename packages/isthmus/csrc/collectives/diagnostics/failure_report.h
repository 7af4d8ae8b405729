// Failure of an operation of a group, and the record of it that the launcher reads.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace isthmus {

// Ranks of a group that an operation waits for, and what is known of each, in words.
struct MissingRanks {
  std::vector<int> ranks;
  std::string details;  // begins with "; " unless it is empty
};

struct Failure {
  enum class Kind { kTimeout, kPeerLost, kAborted, kMismatch, kError };

  Kind kind;
  std::string operation;        // for messages: "all_reduce #3 of torch.float32 [4, 3]"
  std::string what;             // continues the operation: "timed out after 3 s waiting for ranks [1]"
  uint64_t number = 0;          // number of the collective in its group; 0 if unknown or not a collective
  std::vector<int> ranks = {};  // missing or lost ranks of the group
  int64_t process = 0;          // process id of the lost rank; 0 if unknown
};

// "3 s" or "300 ms".
std::string duration_text(std::chrono::milliseconds duration);
// "timed out after 3 s", and the ranks that it waited for.
std::string timeout_text(std::chrono::milliseconds timeout, const MissingRanks& missing);

// A line of JSON: rank, process, kind, group, operation, number, ranks, processes and message. Ranks are
// global; processes are those of the ranks.
std::string failure_json(const Failure& failure, const std::string& message, const std::string& group,
                         int rank, const std::vector<uint64_t>& global_ranks);

// The record of a group's first failure. Each call appends a line to the file ISTHMUS_FAILURE_FILE, which
// `isthmus run` sets: of several lines of a group and a process, the last is valid. Children of the process
// write to the same file.
class FailureRecord {
 public:
  // Writes the record, unless one that is not provisional was written. Returns whether it was written.
  bool write(const std::string& json, bool is_provisional = false) noexcept;
  // Writes a record again, with the first failure of the group, which is that of another rank.
  void add(std::string json, const std::string& first) noexcept;

 private:
  std::mutex mutex_;
  bool is_written_ = false;
};

// Writes a file that only its owner can write and its group can read, beside its place, and renames it.
// Throws.
void write_file(const std::string& path, const std::string& text);

}  // namespace isthmus
