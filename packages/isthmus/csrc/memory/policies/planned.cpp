#include "memory/policies/planned.h"

#include <algorithm>

namespace isthmus::memory {
namespace {

constexpr size_t kDoubtful = 2;  // so many, or such a part of its bytes in a step, if memory is short
constexpr size_t kDoubtfulPart = 16;
constexpr size_t kLost = 8;  // unexpected requests in a row after which a plan is not followed any more

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
  const bool is_expected =
      track.is_planned() && !track.abandoned && (track.matches(track.cursor, size) || track.resume(size));
  if (asks(track, size)) {
    if (affords(track)) return nullptr;  // growth() requests it
    refuse(track);
  }
  if (is_expected && !track.abandoned && track.slots[track.cursor].area != kElsewhere)
    if (Block* block = follow(track, size)) return block;
  Block* block = find_online(track, size);
  if (block == nullptr && is_doubtful(track) && excess(segment_bytes(size)) > 0) {
    abandon(track);
    block = find_online(track, size);
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
  if (block->size - size <= kSmallLimit || releases_left_ <= 0) return true;
  return block->size <= segment_bytes(size);
}

Block* PlannedPolicy::find_online(Track& track, size_t size) {
  Block* block = track.parts.smallest(size);
  Block* const whole = track.whole.smallest(size);
  if (whole != nullptr && may_give(whole, size) && (block == nullptr || BySize()(whole, block)))
    block = whole;
  if (block == nullptr) return nullptr;
  const bool is_own = block == whole && size >= kOwnSegmentLimit && block->size <= segment_bytes(size);
  erase_free(block);
  if (!is_own) split(block, size);
  return block;
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
  if (track.arena != nullptr) dissolve(track);
  track.wanted = track.region == nullptr ? round_to(track.room, kOwnSegmentRound) : 0;
}

}  // namespace isthmus::memory
