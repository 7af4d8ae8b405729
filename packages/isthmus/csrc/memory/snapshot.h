// Snapshot of a device's memory: segments and the blocks in them.
#pragma once

#include <vector>

#include "memory/block.h"
#include "memory/segments.h"

namespace isthmus::memory {

struct BlockView {
  uintptr_t address = 0;
  size_t size = 0;
  size_t requested = 0;
  BlockState state = BlockState::kFree;  // kUsed, kWaiting or kFree
};

// A segment with its blocks, in address order, which fill it. Adjacent free blocks are merged, whatever lists
// they are in.
struct SegmentView {
  Segment segment;
  bool is_small = false;
  std::vector<BlockView> blocks;
};

}  // namespace isthmus::memory
