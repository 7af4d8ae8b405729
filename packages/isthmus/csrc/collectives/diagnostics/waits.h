// The operations that the ranks of a group wait in, and whether they use groups in different orders.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace isthmus {

// An outstanding operation of a process.
struct Wait {
  int64_t stream;         // id of its stream in the process
  std::string group;      // name
  uint64_t number;        // number of the collective in its group; 0 for a message
  std::string operation;  // "all_reduce #3"
};
using Waits = std::vector<Wait>;  // in the order in which they were enqueued

// The waits as lines of text, and back.
std::string lines_of(const Waits& waits);
Waits waits_of(const std::string& lines);

// State of a rank of the group whose operation timed out.
struct RankState {
  uint64_t reached = 0;  // number of the last collective of the group
  Waits waits;
};

// A collective of a group.
struct Position {
  std::string group;
  uint64_t number;
};

// Tells where ranks wait, if some wait elsewhere than at the position, and which two groups own and another
// rank use in a different order; each part begins with "; ". reached: number of the last collective of a
// group in this process, if it is a member.
std::string explain_waits(const Position& position, int own, const std::map<int, RankState>& ranks,
                          const std::function<std::optional<uint64_t>(const std::string&)>& reached);

}  // namespace isthmus
