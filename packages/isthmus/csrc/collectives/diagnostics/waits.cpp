#include "collectives/diagnostics/waits.h"

#include <algorithm>
#include <sstream>

namespace isthmus {
namespace {

constexpr size_t kSets = 8;    // sets of ranks in a message
constexpr size_t kInARow = 3;  // operations of a rank in a message

bool is_at(const Wait& wait, const Position& position) {
  return wait.group == position.group && wait.number == position.number && wait.number != 0;
}

Waits::const_iterator find(const Waits& waits, const Position& position) {
  return std::find_if(waits.begin(), waits.end(), [&](const Wait& wait) { return is_at(wait, position); });
}

// "all_reduce #3 of group '1', then all_reduce #2 of group '2'": the first operation, and those behind it.
std::string text_of(const Waits& waits) {
  std::string text;
  size_t count = 0;
  for (const Wait& wait : waits) {
    if (wait.stream != waits[0].stream || count++ == kInARow) continue;
    text += (text.empty() ? "" : ", then ") + wait.operation + " of group '" + wait.group + "'";
  }
  return text;
}

std::string ranks_text(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return "rank " + std::to_string(ranks[0]) + " waits in ";
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "ranks [" : ", ") + std::to_string(rank);
  return text + "] wait in ";
}

std::string describe(const Position& position, const std::map<int, RankState>& ranks) {
  std::map<std::string, std::vector<int>> by_text;
  bool is_elsewhere = false;
  for (const auto& [rank, state] : ranks) {
    if (state.waits.empty()) continue;
    by_text[text_of(state.waits)].push_back(rank);
    is_elsewhere = is_elsewhere || !is_at(state.waits[0], position);
  }
  std::string text;
  if (!is_elsewhere || by_text.size() > kSets) return text;
  std::map<std::vector<int>, std::string> by_ranks;
  for (const auto& [operations, those] : by_text) by_ranks[those] = operations;
  for (const auto& [those, operations] : by_ranks) text += "; " + ranks_text(those) + operations;
  return text;
}

// The collective of another group that the rank waits in before the position; null if there is none.
const Wait* blocked_by(const RankState& state, const Position& position) {
  const auto mine = find(state.waits, position);
  if (mine == state.waits.end() && state.reached >= position.number) return nullptr;
  for (auto wait = state.waits.begin(); wait != mine; ++wait) {
    if (mine != state.waits.end() && wait->stream != mine->stream) continue;
    if (wait->number != 0 && wait->group != position.group) return &*wait;
  }
  return nullptr;
}

}  // namespace

std::string lines_of(const Waits& waits) {
  std::ostringstream text;
  for (const Wait& wait : waits)
    text << wait.stream << ' ' << wait.number << ' ' << wait.group << '\t' << wait.operation << '\n';
  return text.str();
}

Waits waits_of(const std::string& lines) {
  Waits waits;
  std::istringstream text(lines);
  for (Wait wait; text >> wait.stream >> wait.number && text.ignore(1) &&
                  std::getline(text, wait.group, '\t') && std::getline(text, wait.operation);)
    waits.push_back(wait);
  return waits;
}

std::string explain_waits(const Position& position, int own, const std::map<int, RankState>& ranks,
                          const std::function<std::optional<uint64_t>(const std::string&)>& reached) {
  std::string text = describe(position, ranks);
  const auto self = ranks.find(own);
  const Waits mine = self == ranks.end() ? Waits{} : self->second.waits;
  const auto at = find(mine, position);
  for (const auto& [rank, state] : ranks) {
    const Wait* const wait = rank == own ? nullptr : blocked_by(state, position);
    if (wait == nullptr) continue;
    const auto behind = find(mine, {wait->group, wait->number});
    const bool is_queued =
        at != mine.end() && behind != mine.end() && at < behind && at->stream == behind->stream;
    const auto number = reached(wait->group);
    if (!is_queued && !(number && *number < wait->number)) continue;
    return text + "; groups '" + position.group + "' and '" + wait->group +
           "' are used in a different order on ranks " + std::to_string(std::min(own, rank)) + " and " +
           std::to_string(std::max(own, rank)) + (is_queued ? ", on one stream" : "") +
           ": use them in one order on all ranks";
  }
  return text;
}

}  // namespace isthmus
