// "planned": memory requested from the driver, arenas and regions, and memory returned to it.
#include <algorithm>

#include "memory/policies/planned.h"

namespace isthmus::memory {
namespace {

// Share of the bytes in use at a time that may be reserved, plus one shared segment.
constexpr double kToleratedFirst = 1.002, kTolerated = 1.01, kToleratedRegion = 1.03;
// Weights may be in segments that are never free. Without a plan, memory would be freed and requested
// again in every step, which costs more than keeping some.
constexpr double kToleratedRefused = 1.125;
constexpr int kRefusals = 2;          // consecutive steps, enough for free memory to be released
constexpr int64_t kReleaseCost = 64;  // in requests: releasing memory waits for the device
constexpr double kRoomy =
    1.01;  // a region up to this factor larger than a plan is used for it, whatever is reserved

}  // namespace

Growth PlannedPolicy::growth(int64_t stream, size_t requested) {
  const size_t size = round_to(requested, kGranule);
  if (size <= kSmallLimit) return TreePolicy::growth(stream, requested);
  Track& track = this->track(stream);
  Growth growth{segment_bytes(size), size};
  if (asks(track, size)) {
    growth.bytes = track.asked = track.wanted;
    track.wanted = 0;
    growth.release = whole_bytes();
    return growth;
  }
  const size_t excess = this->excess(growth.bytes);
  if (excess == 0) return growth;
  for_each_track([this](Track& each) {
    if (each.arena != nullptr && each.held == 0 && !each.unexpected.empty()) abandon(each);
  });
  growth.release = std::min(excess, whole_bytes());
  if (growth.release > 0) releases_left_ -= kReleaseCost;
  return growth;
}

// Bytes that growth would reserve beyond those in use at a time.
size_t PlannedPolicy::excess(size_t bytes) {
  const auto in_use = static_cast<size_t>(statistics_.active_bytes.all.current);
  const auto peak = static_cast<size_t>(statistics_.active_bytes.all.peak);
  highest_ = std::max({highest_, peak, in_use + bytes});
  const size_t limit = most_tolerated(highest_, steps_ == 0 ? kToleratedFirst : kTolerated);
  const size_t reserved = static_cast<size_t>(statistics_.reserved_bytes.all.current) + bytes;
  return reserved > limit && releases_left_ > 0 ? reserved - limit : 0;
}

// Bytes that may be reserved for bytes in use at a time.
size_t PlannedPolicy::most_tolerated(size_t bytes, double share) {
  return static_cast<size_t>(share * static_cast<double>(bytes)) + kLargeSegment;
}

// Whether to request the memory of the whole step from the driver before serving this request.
bool PlannedPolicy::asks(const Track& track, size_t size) const {
  if (C10_LIKELY(track.wanted == 0)) return false;
  if (track.abandoned) return size <= track.wanted;
  return track.matches(track.cursor, size) && track.slots[track.cursor].area != kElsewhere;
}

// Whether that reserves little more than will be in use: live blocks may be in mostly free segments, such as
// gradients allocated before the plan.
bool PlannedPolicy::affords(const Track& track) {
  const auto reserved = static_cast<size_t>(statistics_.reserved_bytes.all.current);
  size_t idle = whole_bytes();
  for_each_track([&](const Track& each) {  // streams cannot share: each has its own arena
    idle += each.arena_bytes - each.held_bytes;
    if (&each != &track && each.region != nullptr && !each.is_region_free()) idle += each.region_bytes;
  });
  const auto in_use = static_cast<size_t>(statistics_.active_bytes.all.current);
  const size_t expected = std::max(highest_, in_use + track.wanted);
  double share = track.abandoned ? kToleratedRegion : kTolerated;
  if (track.refusals >= kRefusals) share = kToleratedRefused;
  return reserved + track.wanted <= idle + most_tolerated(expected, share);
}

void PlannedPolicy::refuse(Track& track) {
  track.wanted = 0;
  if (track.abandoned) return;
  if (!track.recording) track.start_recording();
  track.abandoned = track.refused = true;
}

Block* PlannedPolicy::place(int64_t stream, Range range, size_t requested) {
  const size_t size = round_to(requested, kGranule);
  if (size <= kSmallLimit) return TreePolicy::place(stream, range, requested);
  Track& track = this->track(stream);
  if (range.bytes == track.asked && range.bytes > segment_bytes(size)) {
    track.asked = 0;
    count_segment(/*small=*/false, range.bytes);
    if (!track.abandoned) {
      forget_region(track);
      track.arena = static_cast<char*>(range.pointer);
      track.arena_bytes = range.bytes;
      make_blocks(track);
      track.clear_skips();
      track.exact = !track.recording;
      return follow(track, size);
    }
    forget_region(track);
    Block* const block = new_block(pool(stream), range.pointer, range.bytes, /*small=*/false);
    set_region(track, block, range.bytes);
    split(block, size);
    note(track, size, block);
    return block;
  }
  track.asked = 0;
  track.overflow += range.bytes;
  track.overflow_peak = std::max(track.overflow_peak, track.overflow);
  Block* const block = segment_block(pool(stream), range, /*small=*/false);
  if (range.bytes > segment_bytes(size) || size < kOwnSegmentLimit) split(block, size);
  note(track, size, block);
  return block;
}

// ---- arenas and regions

void PlannedPolicy::make_blocks(Track& track) {
  for (uint32_t i = 0; i < track.areas.size(); ++i) {
    Area& area = track.areas[i];
    area.block = new_block(pool(track.stream), track.arena + area.offset, area.size, /*small=*/false);
    area.block->size = 0;
    area.block->tag = kAreaTag | i;
    area.block->state = BlockState::kKept;
  }
}

void PlannedPolicy::drop_blocks(Track& track) {
  for (uint32_t i = 0; i < track.areas.size(); ++i) {
    if (track.busy[i] || track.areas[i].block == nullptr) continue;
    drop_block(track.areas[i].block);
    track.areas[i].block = nullptr;
  }
}

// The arena becomes an ordinary segment: its free parts serve any request.
void PlannedPolicy::dissolve(Track& track) {
  std::vector<Block*> chain;
  for (uint32_t i = 0; i < track.areas.size(); ++i)
    if (track.busy[i]) chain.push_back(track.areas[i].block);
  drop_blocks(track);
  if (track.held > 0) {
    statistics_.inactive_split.subtract(/*is_small=*/false, 1);
    statistics_.inactive_split_bytes.subtract(/*is_small=*/false,
                                              static_cast<int64_t>(track.arena_bytes - track.held_bytes));
  }
  for (Block* block : chain) {
    Area& area = track.areas[block->tag & ~kAreaTag];
    block->tag = area.request;
    list_block(block);
    area.block = nullptr;
  }
  std::sort(chain.begin(), chain.end(), [](Block* a, Block* b) { return a->pointer < b->pointer; });
  std::vector<Block*> gaps;
  char* at = track.arena;
  Block *first = nullptr, *previous = nullptr;
  const auto append = [&](Block* block) {
    if (first == nullptr) first = block;
    block->previous = previous;
    if (previous != nullptr) previous->next = block;
    previous = block;
  };
  const auto append_gap = [&](char* end) {
    if (end == at) return;
    gaps.push_back(new_block(pool(track.stream), at, static_cast<size_t>(end - at), /*small=*/false));
    append(gaps.back());
  };
  for (Block* block : chain) {
    append_gap(static_cast<char*>(block->pointer));
    append(block);
    at = block->end();
  }
  append_gap(track.arena + track.arena_bytes);
  set_region(track, first, track.arena_bytes);
  for (Block* gap : gaps) insert_free(gap);
  std::fill(track.busy.begin(), track.busy.end(), uint8_t{0});
  track.arena = nullptr;
  track.arena_bytes = track.held = track.held_bytes = 0;
  track.exact = false;
}

bool PlannedPolicy::step() {
  ++steps_;
  size_t idle = whole_bytes();
  for_each_track([&idle](Track& track) {
    track.at_boundary = true;
    track.exact = false;
    if (track.is_region_free()) idle -= track.region_bytes;
  });
  // Memory that the plan has replaced, such as segments of gradients allocated before the plan.
  const bool is_idle = excess(0) > 0 && steps_ > 1 && idle > 0;
  if (is_idle) releases_left_ -= kReleaseCost;
  return steps_ == 1 || is_idle;
}

// Called at the first request after a boundary: blocks freed in between belong to the previous step.
void PlannedPolicy::open_step(Track& track) {
  track.at_boundary = false;
  const bool was_unplanned = !track.follows();
  if (track.learn()) {
    if (track.arena != nullptr) dissolve(track);
    track.plan();
  }
  track.wanted = track.asked = 0;
  if (track.follows()) {
    if (track.arena == nullptr) lay_plan(track);
    if (track.arena == nullptr) track.wanted = round_to(track.height, kOwnSegmentRound);
  } else {
    track.abandoned = true;
    if (track.arena != nullptr) dissolve(track);
    const bool is_too_small = was_unplanned && track.region != nullptr && track.overflow_peak > 0;
    if (is_too_small) track.room = std::max(track.room, track.region_bytes + track.overflow_peak);
    if (is_too_small || track.region == nullptr) track.wanted = round_to(track.room, kOwnSegmentRound);
  }
  track.overflow = track.overflow_peak = 0;
  track.start_step();
  track.exact = track.arena != nullptr && !track.recording;
}

// The arena takes the place of a region of its size.
void PlannedPolicy::lay_plan(Track& track) {
  if (!track.is_region_free() || track.height > track.region_bytes) return;
  const bool is_roomy = static_cast<double>(track.region_bytes) > kRoomy * static_cast<double>(track.height);
  if (is_roomy && excess(0) > 0) return;
  Block* const block = track.region;
  erase_free(block);
  track.arena = static_cast<char*>(block->pointer);
  track.arena_bytes = track.region_bytes;
  track.region = nullptr;
  drop_block(block);
  make_blocks(track);
  track.clear_skips();
}

void PlannedPolicy::set_region(Track& track, Block* first, size_t bytes) {
  forget_region(track);
  track.region = first;
  track.region_bytes = bytes;
}

// It is an ordinary segment from now on.
void PlannedPolicy::forget_region(Track& track) {
  Block* const block = track.region;
  if (block == nullptr) return;
  const bool is_free = track.is_region_free();
  if (is_free) track.parts.erase(block);
  track.region = nullptr;
  if (is_free) track.whole.insert(block);
}

// ---- releasing memory

void PlannedPolicy::list_free(Block* block) {
  block->small ? TreePolicy::list_free(block) : bins_of(block).insert(block);
}

void PlannedPolicy::unlist_free(Block* block) {
  block->small ? TreePolicy::unlist_free(block) : bins_of(block).erase(block);
}

FreeBins& PlannedPolicy::bins_of(const Block* block) {
  Track& track = this->track(block->home->stream);
  return block->whole_segment() && block != track.region ? track.whole : track.parts;
}

std::vector<Range> PlannedPolicy::remove_free(size_t need) {
  std::vector<Range> ranges;
  size_t removed = remove_large(need, ranges);
  if (need == 0 || removed < need) {
    for (const Range& range : TreePolicy::remove_free(need > 0 ? need - removed : 0)) {
      ranges.push_back(range);
      removed += range.bytes;
    }
  }
  for_each_track([&](Track& track) {
    if (track.arena == nullptr || track.held > 0) return;
    if (need > 0 && (removed >= need || !track.abandoned)) return;
    drop_blocks(track);
    ranges.push_back({track.arena, track.arena_bytes, -1, track.stream});
    removed += track.arena_bytes;
    count_segment_gone(/*small=*/false, track.arena_bytes);
    track.arena = nullptr;
    track.arena_bytes = 0;
    track.exact = false;
  });
  return ranges;
}

// The smallest sufficient large segment, or the largest ones until sufficient, regions last; 0: all.
size_t PlannedPolicy::remove_large(size_t need, std::vector<Range>& ranges) {
  size_t removed = 0;
  const auto remove = [&](Track& track, Block* block) {
    removed += block->size;
    ranges.push_back({block->pointer, block->size, -1, track.stream});
    erase_free(block);
    if (block == track.region) {
      track.region = nullptr;
    } else {
      track.overflow -= std::min(track.overflow, block->size);
    }
    remove_segment(block);
  };
  const auto is_enough = [&] { return need > 0 && removed >= need; };
  if (need > 0) {
    for_each_track([&](Track& track) {
      if (is_enough()) return;
      if (Block* block = track.whole.smallest(need)) remove(track, block);
    });
  }
  for_each_track([&](Track& track) {
    while (!is_enough()) {
      Block* const block = track.whole.largest();
      if (block == nullptr) break;
      remove(track, block);
    }
  });
  for_each_track([&](Track& track) {
    if (track.is_region_free() && !is_enough()) remove(track, track.region);
  });
  return removed;
}

Block* PlannedPolicy::find_any(int64_t stream, size_t requested) {
  const size_t size = round_to(requested, kGranule);
  Track& track = this->track(stream);
  if (track.arena != nullptr) {
    if (!track.recording && !track.at_boundary) track.start_recording();
    abandon(track);
    if (track.arena != nullptr) dissolve(track);
  }
  Block* block = track.parts.smallest(size);
  if (block == nullptr) block = track.whole.smallest(size);
  if (block == nullptr) return nullptr;
  erase_free(block);
  split(block, size);
  if (size > kSmallLimit) note(track, size, block);
  return block;
}

size_t PlannedPolicy::largest_free() const {
  size_t largest = TreePolicy::largest_free();
  const auto look = [&largest](const Track& track) {
    for (const FreeBins* bins : {&track.whole, &track.parts})
      if (const Block* block = bins->largest()) largest = std::max(largest, block->size);
    if (track.arena != nullptr) largest = std::max(largest, track.largest_gap());
  };
  look(default_);
  for (const auto& [stream, track] : others_) look(*track);
  return largest;
}

}  // namespace isthmus::memory
