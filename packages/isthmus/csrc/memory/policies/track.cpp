#include "memory/policies/track.h"

#include <algorithm>
#include <map>

namespace isthmus::memory {
namespace {

constexpr size_t kAhead = 512;  // slots searched for the continuation of a sequence
constexpr double kWorthwhile =
    1.03;  // a plan for the largest of all sizes may exceed one step's peak by this factor

constexpr double kSpacious = 1.02;  // size of a region in units of the peak of its blocks

std::vector<Interval> intervals_of(const std::vector<Expected>& expected, std::vector<uint32_t>* numbers) {
  std::vector<Interval> intervals;
  for (uint32_t i = 0; i < expected.size(); ++i) {
    if (expected[i].end == kOutlives) continue;
    intervals.push_back({expected[i].size, i, expected[i].end});
    numbers->push_back(i);
  }
  return intervals;
}

// Whether two steps made the same requests, possibly with other sizes.
bool same_structure(const std::vector<Expected>& a, const std::vector<Expected>& b) {
  if (a.size() != b.size()) return false;
  size_t different = 0;
  for (size_t i = 0; i < a.size(); ++i) different += a[i].end != b[i].end ? 1 : 0;
  return different * 10 <= a.size();
}

}  // namespace

Track::Track(int64_t stream_of_it) : stream(stream_of_it) { set_slots({}, {}, {}); }

void Track::record(size_t size, Block* block, uint32_t area) {
  if (requests_.size() == kLongest) {
    for (const Request& request : requests_)
      if (request.block != nullptr && (request.block->tag & kAreaTag) == 0) request.block->tag = 0;
    requests_.clear();
    for (Area& each : areas) each.request = 0;
    recording = false;
    abandoned = true;
    return;
  }
  requests_.push_back({size, kOutlives, block});
  const auto number = static_cast<uint32_t>(requests_.size());
  (area == kElsewhere ? block->tag : areas[area].request) = number;
}

void Track::start_recording() {
  requests_.clear();
  std::vector<uint32_t> holder(areas.size(), kOutlives);
  for (uint32_t i = 0; i < cursor; ++i) {
    const uint32_t end = slots[i].end;
    requests_.push_back({slots[i].least + slots[i].spread,
                         end == kOutlives ? end : std::min<uint32_t>(end, cursor), nullptr});
    if (slots[i].area != kElsewhere) holder[slots[i].area] = i;
  }
  for (uint32_t i = 0; i < areas.size(); ++i) {
    areas[i].request = 0;
    if (!busy[i] || holder[i] == kOutlives) continue;
    requests_[holder[i]].end = kOutlives;
    requests_[holder[i]].block = areas[i].block;
    areas[i].request = holder[i] + 1;
  }
  recording = true;
  exact = false;
}

// Blocks held at the end of the first step (weights, states of the optimizer) are not expected again.
std::vector<Expected> Track::take_record() {
  std::vector<uint32_t> kept_before(requests_.size() + 1);
  for (size_t i = 0; i < requests_.size(); ++i)
    kept_before[i + 1] = kept_before[i] + (is_first_ && requests_[i].end == kOutlives ? 0 : 1);
  std::vector<Expected> now;
  for (const Request& request : requests_) {
    if (request.block != nullptr && (request.block->tag & kAreaTag) == 0) request.block->tag = 0;
    if (is_first_ && request.end == kOutlives) continue;
    now.push_back(
        {request.size, request.size, request.end == kOutlives ? kOutlives : kept_before[request.end]});
  }
  for (Area& area : areas) area.request = 0;
  requests_.clear();
  return now;
}

bool Track::learn() {
  const bool is_complete = is_planned() && !abandoned && cursor + 1 == slots.size();
  if (!recording && is_planned() && !is_complete && !abandoned) start_recording();
  const bool is_clean = is_complete && !strayed;
  if (is_planned()) skip_to(slots.size() - 1);
  std::vector<Expected> now;
  if (recording) now = take_record();
  bool has_news = false;
  const bool did_follow = follows() && !refused;
  if (did_follow && abandoned && ++failures_ == kFailures) be_patient();
  if (did_follow && !abandoned) failures_ = 0;
  refusals = refused ? refusals + 1 : 0;
  successes_ = is_clean ? successes_ + 1 : 0;
  if (successes_ == kReliable) patience_ = 0;
  if (is_clean) {
    careful_ = false;
    next_rest_ = 1;
    if (is_stale_) expect_plan();
  } else if (!now.empty()) {
    has_news = merge(std::move(now));
  }
  is_first_ = false;
  cursor = 0;
  abandoned = refused = strayed = false;
  missed_bytes = 0;
  unexpected.clear();
  return has_news;
}

// When steps differ from the last ones, two consecutive steps are recorded and compared, at growing
// intervals.
void Track::start_step() {
  recording = follows() ? careful_ : rest_ == 0;
  if (follows()) return;
  if (rest_ > 0) {
    --rest_;
    return;
  }
  if (agreed_ > 0) return;
  is_second_ = !is_second_;
  if (is_second_) return;
  rest_ = next_rest_;
  next_rest_ = std::min(2 * next_rest_, kLongestRest);
}

// The step that was not as planned (an evaluation, perhaps) was an exception.
void Track::expect_plan() {
  expected_.clear();
  for (size_t i = 0; i + 1 < slots.size(); ++i)
    expected_.push_back({slots[i].least, slots[i].least + slots[i].spread, slots[i].end});
  is_stale_ = false;
}

// Whether to make a plan: in the first step, or if a step repeated the previous one.
bool Track::merge(std::vector<Expected> now) {
  std::vector<uint32_t> numbers;
  const size_t peak = peak_of(intervals_of(now, &numbers));
  room = std::max(room, static_cast<size_t>(kSpacious * static_cast<double>(peak)));
  if (!same_structure(expected_, now)) {
    const bool is_first = is_first_;
    expected_ = std::move(now);
    highest_ = peak;
    varies_ = false;
    is_stale_ = true;
    agreed_ = 0;
    return is_first;
  }
  highest_ = std::max(highest_, peak);
  bool has_changed = false;
  for (size_t i = 0; i < now.size(); ++i) {
    Expected& old = expected_[i];
    has_changed |= now[i].size > old.size || now[i].end > old.end || now[i].size < old.least / 2;
    varies_ |= now[i].size != old.size;
    old = {std::min(old.least, now[i].least), std::max(old.size, now[i].size), std::max(old.end, now[i].end)};
  }
  agreed_ = has_changed ? 0 : agreed_ + 1;
  const bool is_known = is_planned() && !is_stale_ && !has_changed;
  return !is_known && agreed_ >= patience_;
}

// Plans cost more than they save when steps differ: from now on, more equal steps are required.
void Track::be_patient() { patience_ = std::min(std::max(2 * patience_, 1), kLongestRest); }

void Track::plan() {
  std::vector<uint32_t> numbers;
  const std::vector<Interval> intervals = intervals_of(expected_, &numbers);
  const auto limit = static_cast<size_t>(kWorthwhile * static_cast<double>(highest_));
  Placement placement;
  if (peak_of(intervals) <= limit) placement = place_intervals(intervals);
  const bool is_useful = placement.height > 0 && placement.height <= limit;
  careful_ = is_stale_ = false;
  failures_ = 0;
  if (is_useful) {
    set_slots(intervals, numbers, placement);
  } else {
    set_slots({}, {}, {});
    be_patient();
    agreed_ = 0;
    if (patience_ > 1) expected_.clear();
  }
}

void Track::set_slots(const std::vector<Interval>& intervals, const std::vector<uint32_t>& numbers,
                      const Placement& placement) {
  height = placement.height;
  areas.clear();
  before.clear();
  before_slots_.clear();
  const size_t count = height == 0 ? 0 : expected_.size();
  slots.assign(count + 1, {~size_t{0}, 0, kElsewhere, 0, 0});
  skipped_.assign(count + 1, 0);
  for (size_t i = 0; i < count; ++i) {
    const size_t least = varies_ ? expected_[i].least / 2 : expected_[i].least;
    slots[i].least = least;
    slots[i].spread = expected_[i].size - least;
    slots[i].end = expected_[i].end;
  }
  std::map<std::pair<size_t, size_t>, uint32_t> numbers_of_areas;
  for (size_t k = 0; k < intervals.size() && count > 0; ++k) {
    const auto next = static_cast<uint32_t>(areas.size());
    const auto [found, is_new] =
        numbers_of_areas.try_emplace({placement.offsets[k], intervals[k].size}, next);
    if (is_new) areas.push_back({placement.offsets[k], intervals[k].size, nullptr, 0});
    slots[numbers[k]].area = found->second;
  }
  busy.assign(areas.size(), 0);
  const Predecessors predecessors = find_predecessors(intervals, placement.offsets);
  size_t k = 0;
  for (size_t i = 0; i <= count; ++i) {
    slots[i].first = static_cast<uint32_t>(before.size());
    if (k == numbers.size() || numbers[k] != i || count == 0) continue;
    for (uint32_t j = predecessors.first[k]; j < predecessors.first[k + 1]; ++j) {
      const uint32_t slot = numbers[predecessors.list[j]];
      before_slots_.push_back(slot);
      before.push_back(slots[slot].area);
    }
    ++k;
  }
}

// A skipped slot does not show whether its memory is free; its predecessors do.
bool Track::is_clear(size_t index, int depth) const {
  for (uint32_t k = slots[index].first; k < slots[index + 1].first; ++k) {
    if (busy[before[k]]) return false;
    if (careful_ && skipped_[before_slots_[k]] && (depth == 0 || !is_clear(before_slots_[k], depth - 1)))
      return false;
  }
  return true;
}

bool Track::resume(size_t size) {
  const size_t count = unexpected.size();
  if (count < 2) return false;
  const size_t end = std::min(cursor + kAhead, slots.size() - 1);
  for (size_t at = cursor + 2; at < end; ++at) {
    if (!matches(at, size) || !matches(at - 1, unexpected[count - 1]) ||
        !matches(at - 2, unexpected[count - 2]))
      continue;
    skip_to(at);
    return true;
  }
  return false;
}

void Track::skip_to(size_t index) {
  for (; cursor < index; ++cursor) {
    skipped_[cursor] = 1;
    careful_ = strayed = true;
    exact = false;
  }
}

void Track::clear_skips() {
  std::fill(skipped_.begin(), skipped_.end(), uint8_t{0});
  careful_ = false;
}

size_t Track::largest_gap() const {
  std::vector<std::pair<size_t, size_t>> held_ranges;
  for (size_t i = 0; i < areas.size(); ++i)
    if (busy[i]) held_ranges.emplace_back(areas[i].offset, areas[i].offset + areas[i].size);
  std::sort(held_ranges.begin(), held_ranges.end());
  size_t at = 0, largest = 0;
  for (const auto& [begin, end] : held_ranges) {
    largest = std::max(largest, begin - at);
    at = end;
  }
  return std::max(largest, arena_bytes - at);
}

}  // namespace isthmus::memory
