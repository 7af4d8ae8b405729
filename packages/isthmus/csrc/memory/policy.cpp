#include "memory/policy.h"

namespace isthmus::memory {

void Policy::wait_done(Block* block, bool is_last) {
  count_inactive(block);
  if (!is_last) return put(block);
  block->state = BlockState::kCooling;
  cool(block);
  cooling_.push_back(block);
}

void Policy::put_cooled() {
  for (Block* block : cooling_) put(block);
  cooling_.clear();
}

Block* Policy::new_block(StreamPool& home, void* pointer, size_t size, bool small) {
  if (unused_ == nullptr) {
    slabs_.emplace_back(new Block[kSlab]);
    for (size_t i = 0; i < kSlab; ++i) {
      slabs_.back()[i].below = unused_;
      unused_ = &slabs_.back()[i];
    }
  }
  Block* block = unused_;
  unused_ = block->below;
  block->pointer = pointer;
  block->size = size;
  block->home = &home;
  block->small = small;
  block->state = BlockState::kUsed;  // else new neighbours would merge with it
  block->previous = block->next = block->below = nullptr;
  block->tag = 0;
  table_.set(pointer, block);
  return block;
}

void Policy::drop_block(Block* block) {
  table_.set(block->pointer, nullptr);
  block->size = 0;
  block->state = BlockState::kUsed;
  block->below = unused_;
  unused_ = block;
}

void Policy::count_segment(bool small, size_t bytes) {
  statistics_.segment.add(small, 1);
  count_reserved(small, static_cast<int64_t>(bytes));
  if (bytes >= options_.max_split) statistics_.oversize_segments.add(1);
}

void Policy::count_segment_gone(bool small, size_t bytes) {
  statistics_.segment.subtract(small, 1);
  count_reserved(small, -static_cast<int64_t>(bytes));
  if (bytes >= options_.max_split) statistics_.oversize_segments.subtract(1);
}

void Policy::count_inactive_split(const Block* block, int sign) {
  if (block->whole_segment()) return;
  const auto size = static_cast<int64_t>(block->size);
  if (sign > 0) {
    statistics_.inactive_split.add(block->small, 1);
    statistics_.inactive_split_bytes.add(block->small, size);
  } else {
    statistics_.inactive_split.subtract(block->small, 1);
    statistics_.inactive_split_bytes.subtract(block->small, size);
  }
}

void Policy::count_reserved(bool small, int64_t bytes) {
  for (Tally* tally : {&statistics_.reserved_bytes, reserved_}) {
    if (tally != nullptr) bytes >= 0 ? tally->add(small, bytes) : tally->subtract(small, -bytes);
  }
}

}  // namespace isthmus::memory
