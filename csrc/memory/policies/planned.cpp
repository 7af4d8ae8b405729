#include "memory/policies/planned.h"

#include <algorithm>
#include <numeric>

namespace isthmus::memory {
namespace {

// Of what was in use at a time, so much may be reserved, and one shared segment more.
constexpr double kToleratedFirst = 1.002, kTolerated = 1.01;
constexpr int64_t kReleaseCost = 64;  // in requests: giving memory back waits for the device
constexpr int kCandidates = 32;
constexpr size_t kDoubtful = 2;  // so many, or such a part of its bytes in a step, if memory is short
constexpr size_t kDoubtfulPart = 16;
constexpr size_t kLost = 8;      // unexpected requests in a row after which a plan is not followed any more
constexpr double kRoomy = 1.01;  // an arena so much larger than the plan is kept

size_t segment_bytes(size_t size) {
  return size < kOwnSegmentLimit ? kLargeSegment : round_to(size, kOwnSegmentRound);
}

bool is_doubtful(const Track& track) {
  return track.is_planned() && !track.abandoned &&
         (track.unexpected.size() >= kDoubtful || track.missed_bytes > track.height / kDoubtfulPart);
}

}  // namespace

Track& PlannedPolicy::other_track(int64_t stream) {
  std::unique_ptr<Track>& track = others_[stream];
  if (track == nullptr) track = std::make_unique<Track>(stream);
  return *track;
}

Block* PlannedPolicy::find(int64_t stream, size_t requested) {
  const size_t size = round_to(requested, kGranule);
  if (size <= kSmallLimit) return TreePolicy::find(stream, requested);
  Track& track = this->track(stream);
  const Slot& slot = track.slots[track.cursor];
  if (C10_LIKELY(track.exact && size - slot.least <= slot.spread && slot.area != kElsewhere)) {
    const uint32_t end = (&slot)[1].first;
    uint32_t i = slot.first;
    while (i < end && !track.busy[track.before[i]]) ++i;
    if (C10_LIKELY(i == end)) {
      ++track.cursor;
      return hold(track, slot);
    }
  }
  return find_large(track, size);
}

Block* PlannedPolicy::hold(Track& track, const Slot& slot) {
  Block* const block = track.areas[slot.area].block;
  const size_t size = slot.least + slot.spread;
  track.busy[slot.area] = 1;
  block->size = size;
  list_block(block);
  if (track.held++ == 0) {
    statistics_.inactive_split.add(/*is_small=*/false, 1);
    statistics_.inactive_split_bytes.add(/*is_small=*/false, static_cast<int64_t>(track.arena_bytes));
  }
  track.held_bytes += size;
  statistics_.inactive_split_bytes.subtract(/*is_small=*/false, static_cast<int64_t>(size));
  return block;
}

void PlannedPolicy::put(Block* block) {
  if (block->tag == 0) return TreePolicy::put(block);
  Track& track = this->track(block->home->stream);
  if ((block->tag & kAreaTag) == 0) {
    close_request(track, block);
    return TreePolicy::put(block);
  }
  close_request(track, block);
  const uint32_t number = block->tag & ~kAreaTag;
  track.busy[number] = 0;
  block->state = BlockState::kKept;
  const size_t size = block->size;
  block->size = 0;  // it is not shown
  track.held_bytes -= size;
  statistics_.inactive_split_bytes.add(/*is_small=*/false, static_cast<int64_t>(size));
  if (--track.held == 0) {
    statistics_.inactive_split.subtract(/*is_small=*/false, 1);
    statistics_.inactive_split_bytes.subtract(/*is_small=*/false, static_cast<int64_t>(track.arena_bytes));
  }
}

void PlannedPolicy::cool(Block* block) { close_request(track(block->home->stream), block); }

// The request has had its memory until now.
void PlannedPolicy::close_request(Track& track, Block* block) {
  uint32_t& request = (block->tag & kAreaTag) != 0 ? track.areas[block->tag & ~kAreaTag].request : block->tag;
  if (request == 0) return;
  track.close(request - 1);
  request = 0;
}

Block* PlannedPolicy::find_large(Track& track, size_t size) {
  if (track.at_boundary) open_step(track);
  if (track.is_planned() && !track.abandoned && (track.matches(track.cursor, size) || track.resume(size))) {
    const Slot& slot = track.slots[track.cursor];
    if (slot.area != kElsewhere) {
      if (track.arena == nullptr && !track.asked) return nullptr;  // growth() asks for it
      if (Block* block = follow(track, size)) return block;
    }
  }
  Block* block = find_online(track.stream, size);
  if (block == nullptr && is_doubtful(track) && excess(segment_bytes(size)) > 0) {
    abandon(track);
    block = find_online(track.stream, size);
  }
  if (block != nullptr) note(track, size, block);
  return block;
}

Block* PlannedPolicy::follow(Track& track, size_t size) {
  if (track.arena == nullptr) return nullptr;
  if (!track.is_clear(track.cursor)) {
    put_cooled();
    if (!track.is_clear(track.cursor)) return nullptr;
  }
  const Slot& slot = track.slots[track.cursor];
  track.advance();
  Block* const block = hold(track, slot);
  if (track.recording) track.record(size, block, slot.area);
  return block;
}

// Memory that can go back whole stays whole, unless nothing more may go back for now.
bool PlannedPolicy::may_give(const Block* block, size_t size) const {
  if (block->size - size <= kSmallLimit || !block->whole_segment() || releases_left_ <= 0) return true;
  return block->size <= segment_bytes(size);
}

Block* PlannedPolicy::find_online(int64_t stream, size_t size) {
  FreeTree& tree = pool(stream).large;
  Block wanted;
  wanted.size = size;
  int candidates = kCandidates;
  for (auto it = tree.lower_bound(&wanted); it != tree.end() && candidates > 0; ++it, --candidates) {
    Block* const block = *it;
    if (!may_give(block, size)) continue;
    const bool is_own =
        block->whole_segment() && size >= kOwnSegmentLimit && block->size <= segment_bytes(size);
    erase_free(block);
    if (!is_own) split(block, size);
    return block;
  }
  return nullptr;
}

// A request was served, but not by its slot.
void PlannedPolicy::note(Track& track, size_t size, Block* block) {
  releases_left_ = std::min(releases_left_ + 1, kReleases);
  if (track.is_planned() && !track.abandoned) {
    const bool is_expected = track.matches(track.cursor, size);
    if (is_expected && track.slots[track.cursor].area == kElsewhere) {
      track.advance();
    } else {
      if (!track.recording) track.start_recording();
      if (is_expected) track.skip_to(track.cursor + 1);
      track.exact = false;
      track.strayed = true;
      track.missed_bytes += size;
      track.unexpected.push_back(size);
      if (track.unexpected.size() >= kLost) abandon(track);
    }
  }
  if (track.recording) track.record(size, block, kElsewhere);
}

void PlannedPolicy::abandon(Track& track) {
  track.abandoned = true;
  track.exact = false;
  if (track.arena != nullptr && track.held > 0) dissolve(track);
}

Growth PlannedPolicy::growth(int64_t stream, size_t requested) {
  const size_t size = round_to(requested, kGranule);
  if (size <= kSmallLimit) return TreePolicy::growth(stream, requested);
  Track& track = this->track(stream);
  Growth growth{segment_bytes(size), size};
  if (track.arena == nullptr && track.is_planned() && !track.asked && !track.abandoned &&
      track.matches(track.cursor, size) && track.slots[track.cursor].area != kElsewhere) {
    track.asked = true;
    growth.bytes = round_to(track.height, kOwnSegmentRound);
    growth.release = whole_bytes();
    return growth;
  }
  const size_t excess = this->excess(growth.bytes);
  if (excess == 0) return growth;
  for_each_track([this](Track& each) {
    if (each.arena != nullptr && each.held == 0 && !each.unexpected.empty()) abandon(each);
  });
  size_t free = whole_bytes();
  for_each_track([&free](Track& each) {
    if (each.arena != nullptr && each.abandoned && each.held == 0) free += each.arena_bytes;
  });
  growth.release = std::min(excess, free);
  if (growth.release > 0) releases_left_ -= kReleaseCost;
  return growth;
}

// What growing by bytes would reserve beyond what was in use at a time.
size_t PlannedPolicy::excess(size_t bytes) {
  const auto in_use = static_cast<size_t>(statistics_.active_bytes.all.current);
  const auto peak = static_cast<size_t>(statistics_.active_bytes.all.peak);
  highest_ = std::max({highest_, peak, in_use + bytes});
  const double tolerated = steps_ == 0 ? kToleratedFirst : kTolerated;
  const size_t limit = static_cast<size_t>(tolerated * static_cast<double>(highest_)) + kLargeSegment;
  const size_t reserved = static_cast<size_t>(statistics_.reserved_bytes.all.current) + bytes;
  return reserved > limit && releases_left_ > 0 ? reserved - limit : 0;
}

Block* PlannedPolicy::place(int64_t stream, Range range, size_t requested) {
  const size_t size = round_to(requested, kGranule);
  if (size <= kSmallLimit) return TreePolicy::place(stream, range, requested);
  Track& track = this->track(stream);
  if (track.asked && track.arena == nullptr && !track.abandoned &&
      range.bytes == round_to(track.height, kOwnSegmentRound) && track.matches(track.cursor, size) &&
      track.slots[track.cursor].area != kElsewhere) {
    count_segment(/*small=*/false, range.bytes);
    track.arena = static_cast<char*>(range.pointer);
    track.arena_bytes = range.bytes;
    make_blocks(track);
    track.clear_skips();
    track.exact = !track.recording;
    return follow(track, size);
  }
  Block* const block = segment_block(pool(stream), range, /*small=*/false);
  if (range.bytes > segment_bytes(size) || size < kOwnSegmentLimit) split(block, size);
  note(track, size, block);
  return block;
}

// ---- arenas

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

// The arena becomes an ordinary segment: its free parts serve whatever is asked for.
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
  Block* previous = nullptr;
  const auto append = [&previous](Block* block) {
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
  for (Block* gap : gaps) insert_free(gap);
  std::fill(track.busy.begin(), track.busy.end(), uint8_t{0});
  track.arena = nullptr;
  track.arena_bytes = track.held = track.held_bytes = 0;
  track.exact = false;
}

bool PlannedPolicy::step() {
  ++steps_;
  for_each_track([](Track& track) {
    track.at_boundary = true;
    track.exact = false;
  });
  // What the plan has replaced, such as the segments of gradients that were made before there was one.
  const bool is_idle = steps_ > 1 && whole_bytes() > 0 && excess(0) > 0;
  if (is_idle) releases_left_ -= kReleaseCost;
  return steps_ == 1 || is_idle;
}

// At the first request after a boundary: what was returned in between belongs to the step before.
void PlannedPolicy::open_step(Track& track) {
  track.at_boundary = false;
  if (track.learn()) {
    if (track.arena != nullptr && track.held > 0) dissolve(track);
    drop_blocks(track);
    track.plan();
    if (track.arena != nullptr) {
      const bool fits = track.height <= track.arena_bytes &&
                        static_cast<double>(track.arena_bytes) <= kRoomy * static_cast<double>(track.height);
      fits ? make_blocks(track) : dissolve(track);
    }
  }
  track.exact = track.arena != nullptr && !track.recording;
}

// ---- giving back

std::vector<Range> PlannedPolicy::remove_free(size_t need) {
  std::vector<Range> ranges;
  size_t removed = 0;
  if (need > 0) removed = remove_large(need, ranges);
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
    ranges.push_back({track.arena, track.arena_bytes});
    removed += track.arena_bytes;
    count_segment_gone(/*small=*/false, track.arena_bytes);
    track.arena = nullptr;
    track.arena_bytes = 0;
    track.exact = false;
  });
  return ranges;
}

// The smallest large segment that is enough, or the largest ones until it is.
size_t PlannedPolicy::remove_large(size_t need, std::vector<Range>& ranges) {
  size_t removed = 0;
  const auto remove = [&](Block* block) {
    removed += block->size;
    ranges.push_back({block->pointer, block->size});
    erase_free(block);
    remove_segment(block);
  };
  Block wanted;
  wanted.size = need;
  for_each_pool([&](TreePool& pool) {
    if (removed > 0) return;
    const auto enough = std::find_if(pool.large.lower_bound(&wanted), pool.large.end(),
                                     [](const Block* block) { return block->whole_segment(); });
    if (enough != pool.large.end()) remove(*enough);
  });
  for_each_pool([&](TreePool& pool) {
    for (auto it = pool.large.end(); it != pool.large.begin() && removed < need;) {
      Block* const block = *--it;
      if (!block->whole_segment()) continue;
      ++it;  // of what is left, the one behind it
      remove(block);
    }
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
  Block* const block = carve(pool(stream).large, size);
  if (block != nullptr && size > kSmallLimit) note(track, size, block);
  return block;
}

size_t PlannedPolicy::largest_free() const {
  size_t largest = TreePolicy::largest_free();
  const auto look = [&largest](const Track& track) {
    if (track.arena != nullptr) largest = std::max(largest, track.largest_gap());
  };
  look(default_);
  for (const auto& [stream, track] : others_) look(*track);
  return largest;
}

}  // namespace isthmus::memory
