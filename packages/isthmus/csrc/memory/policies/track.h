// One stream's large requests: the record of this step, and the plan derived from previous steps.
#pragma once

#include <cstdint>
#include <vector>

#include "memory/block.h"
#include "memory/policies/free_bins.h"
#include "memory/policies/plan.h"

namespace isthmus::memory {

constexpr uint32_t kOutlives = ~uint32_t{0};      // the end of a block that is held beyond the step
constexpr uint32_t kElsewhere = ~uint32_t{0};     // the area of a block that is not in the arena
constexpr uint32_t kAreaTag = uint32_t{1} << 31;  // Block::tag: this and an area, or 1 + number in the record

// A request of previous steps: between least and size bytes, held until request `end`.
struct Expected {
  size_t least, size;
  uint32_t end;
};

// Placement of a planned request.
struct Slot {
  size_t least, spread;  // serves sizes from least to least + spread
  uint32_t area;         // or kElsewhere: expected, but held beyond the step
  uint32_t first;        // index of the first predecessor
  uint32_t end;          // expected end
};

// A block of the arena. Slots of one place and size share it.
struct Area {
  size_t offset, size;
  Block* block;      // exists while there is an arena
  uint32_t request;  // 1 + number in the record; 0: none
};

// All sizes are multiples of kGranule.
class Track {
 public:
  explicit Track(int64_t stream_of_it);

  // ---- the record
  void record(size_t size, Block* block, uint32_t area);
  void close(uint32_t number) {
    requests_[number].end = static_cast<uint32_t>(requests_.size());
    requests_[number].block = nullptr;
  }
  // Starts recording the step, which matched the plan until now.
  void start_recording();
  // Ends the step. Returns whether to call plan().
  bool learn();
  void plan();
  // Starts a step, after learn() and plan(), which decide whether it is recorded.
  void start_step();

  // ---- the plan
  size_t largest_gap() const;
  bool is_planned() const { return slots.size() > 1; }
  // Whether this step is expected to follow the plan, judged by the last steps.
  bool follows() const { return is_planned() && failures_ < kFailures; }
  bool matches(size_t index, size_t size) const {
    return index + 1 < slots.size() && size - slots[index].least <= slots[index].spread;
  }
  // Whether no block holds memory of the slot.
  bool is_clear(size_t index) const { return is_clear(index, kDeepest); }
  // Moves the cursor to where the last requests and this one continue the plan, if anywhere.
  bool resume(size_t size);
  // Skips the slots up to there.
  void skip_to(size_t index);
  // Clears the skips for a new arena, of which no block is held.
  void clear_skips();
  // The slot under the cursor is taken, or served elsewhere as planned.
  void advance() {
    skipped_[cursor++] = 0;
    unexpected.clear();
  }

  bool is_region_free() const {
    return region != nullptr && region->state == BlockState::kFree && region->whole_segment();
  }

  const int64_t stream;
  std::vector<Slot> slots;  // and one more, which matches nothing
  std::vector<Area> areas;
  std::vector<uint8_t> busy;     // indexed by area
  std::vector<uint32_t> before;  // areas of the slots' predecessors
  size_t cursor = 0;
  size_t height = 0;  // height of the plan

  char* arena = nullptr;
  size_t arena_bytes = 0;
  size_t held = 0, held_bytes = 0;  // held areas, and their bytes

  // ---- its memory
  FreeBins whole;  // segments that are free as a whole
  FreeBins parts;  // free parts of segments, and of the region
  Block* region =
      nullptr;  // the first block of a segment for the requests of a whole step that is not planned
  size_t region_bytes = 0;
  size_t room = 0;      // bytes that such a step may need
  size_t wanted = 0;    // bytes to request from the driver, for an arena or a region
  size_t asked = 0;     // bytes that were requested
  size_t overflow = 0;  // bytes of this step in segments beside arena and region
  size_t overflow_peak = 0;

  bool exact = false;  // an arena exists, and every request of this step was in its slot
  bool recording = true;
  bool at_boundary = false;
  bool abandoned = false;          // the plan, for this step
  bool refused = false;            // for lack of memory
  int refusals = 0;                // steps in a row
  bool strayed = false;            // from the plan, in this step
  size_t missed_bytes = 0;         // bytes of requests of this step that were not served as planned
  std::vector<size_t> unexpected;  // sizes since the last request that was expected

 private:
  static constexpr int kDeepest = 16;
  static constexpr int kFailures = 2;
  static constexpr int kLongestRest = 64;
  static constexpr int kReliable = 4;                  // steps as planned, in a row
  static constexpr size_t kLongest = size_t{1} << 20;  // record of a process that never ends a step

  struct Request {
    size_t size;
    uint32_t end;
    Block* block;  // while it is held and its end is of interest
  };

  std::vector<Expected> take_record();
  bool merge(std::vector<Expected> now);
  void be_patient();
  void expect_plan();
  void set_slots(const std::vector<Interval>& intervals, const std::vector<uint32_t>& numbers,
                 const Placement& placement);
  bool is_clear(size_t index, int depth) const;

  std::vector<Request> requests_;
  std::vector<Expected> expected_;
  std::vector<uint32_t> before_slots_;  // like before, as slots
  std::vector<uint8_t> skipped_;        // indexed by slot: whether its turn passed without it the last time
  bool careful_ = false;                // some may be
  bool is_first_ = true;
  bool is_stale_ = false;   // the plan is not of what is expected now
  bool varies_ = false;     // steps of one structure and different sizes
  int failures_ = 0;        // steps in a row that were not as planned
  int successes_ = 0;       // that were
  int agreed_ = 0;          // recorded steps in a row that were as expected
  int patience_ = 0;        // agreeing steps needed for a plan
  int rest_ = 0;            // steps left that are not recorded
  int next_rest_ = 1;       // it doubles while no plan results
  bool is_second_ = false;  // the second of two recorded steps, which are compared
  size_t highest_ = 0;      // peak of a single step of this structure
};

}  // namespace isthmus::memory
