#include "memory/block_pool.h"

#include <algorithm>

namespace isthmus::memory {
namespace {

constexpr size_t kSlab = 256;  // Block objects allocated at a time

FreeTree& tree_of(Block* block) { return block->small ? block->home->small : block->home->large; }

char* end_of(const Block* block) { return static_cast<char*>(block->pointer) + block->size; }

}  // namespace

BlockPool::BlockPool(DeviceMemory* memory, BlockTable table) : table_(table) { default_.memory = memory; }

size_t BlockPool::segment_size(size_t size) {
  if (size <= kSmallLimit) return kSmallSegment;
  if (size < kOwnSegmentLimit) return kLargeSegment;
  return (size + kOwnSegmentRound - 1) / kOwnSegmentRound * kOwnSegmentRound;
}

StreamBlocks& BlockPool::of_other_stream(int64_t stream) {
  std::unique_ptr<StreamBlocks>& blocks = others_[stream];
  if (blocks == nullptr) {
    blocks = std::make_unique<StreamBlocks>();
    blocks->memory = default_.memory;
    blocks->stream = stream;
  }
  return *blocks;
}

Block* BlockPool::carve(FreeTree& tree, size_t size, size_t requested) {
  Block wanted;
  wanted.size = size;
  const auto found = tree.lower_bound(&wanted);
  if (found == tree.end()) return nullptr;
  Block* block = *found;
  erase_free(block);
  split(block, size);
  use(block, requested);
  statistics();  // samples inactive_split
  return block;
}

Block* BlockPool::add_segment(StreamBlocks& blocks, void* pointer, size_t bytes, size_t requested) {
  const size_t size = round_size(requested);
  Block* block = new_block(blocks, pointer, bytes, size <= kSmallLimit);
  statistics_.segment.add(block->small, 1);
  statistics_.reserved_bytes.add(block->small, static_cast<int64_t>(bytes));
  split(block, size);
  return use(block, requested);
}

void BlockPool::wait_begin(Block* block) {
  subtract_allocated(block);
  block->state = BlockState::kWaiting;
}

void BlockPool::wait_done(Block* block) {
  subtract_active(block);
  put_away(block);
}

// A large block keeps a remainder of up to 1 MiB, which could serve no large request; a small one none, so
// that the blocks of a bin are of one size.
void BlockPool::split(Block* block, size_t size) {
  const size_t rest_size = block->size - size;
  if (rest_size == 0 || (!block->small && rest_size <= kSmallLimit)) return;
  block->size = size;
  Block* rest = new_block(*block->home, end_of(block), rest_size, block->small);
  rest->previous = block;
  rest->next = block->next;
  if (rest->next != nullptr) rest->next->previous = rest;
  block->next = rest;
  insert_free(rest);
}

void BlockPool::insert_free(Block* block) {
  Block* const previous = block->previous;
  Block* const next = block->next;
  if (next != nullptr && next->state == BlockState::kFree) {
    erase_free(next);
    join(block, next);
  }
  if (previous != nullptr && previous->state == BlockState::kFree) {
    erase_free(previous);
    join(previous, block);
    block = previous;
  }
  block->state = BlockState::kFree;
  tree_of(block).insert(block);
  Totals& sum = totals(block->small);
  sum.tree_bytes += static_cast<int64_t>(block->size);
  if (block->whole_segment()) {
    ++sum.free_segments;
    sum.free_segment_bytes += static_cast<int64_t>(block->size);
  }
}

void BlockPool::join(Block* left, Block* right) {
  left->size += right->size;
  left->next = right->next;
  if (left->next != nullptr) left->next->previous = left;
  drop_block(right);
}

void BlockPool::erase_free(Block* block) {
  tree_of(block).erase(block);
  block->state = BlockState::kUsed;  // else its new neighbours would merge with it
  Totals& sum = totals(block->small);
  sum.tree_bytes -= static_cast<int64_t>(block->size);
  if (block->whole_segment()) {
    --sum.free_segments;
    sum.free_segment_bytes -= static_cast<int64_t>(block->size);
  }
}

void BlockPool::flush(StreamBlocks& blocks) {
  for (Block*& top : blocks.bins) {
    while (Block* block = top) {
      top = block->below;
      insert_free(block);
    }
  }
}

void BlockPool::flush_bins() {
  flush(default_);
  for (auto& [stream, blocks] : others_) flush(*blocks);
}

// Bins never give a size to another size. A quarter of the small memory is where merging pays: each flush
// then yields enough to be rare.
void BlockPool::flush_bins_if_many(StreamBlocks& blocks) {
  const int64_t reserved = statistics_.reserved_bytes.small.current;
  const int64_t binned = reserved - statistics_.active_bytes.small.current - small_totals_.tree_bytes;
  if (binned > reserved / 4) flush(blocks);
}

std::vector<void*> BlockPool::remove_free_segments() {
  std::vector<void*> pointers;
  const auto remove_from = [&](FreeTree& tree) {
    std::vector<Block*> free;
    std::copy_if(tree.begin(), tree.end(), std::back_inserter(free),
                 [](const Block* block) { return block->whole_segment(); });
    for (Block* block : free) {
      erase_free(block);
      pointers.push_back(block->pointer);
      statistics_.segment.subtract(block->small, 1);
      statistics_.reserved_bytes.subtract(block->small, static_cast<int64_t>(block->size));
      drop_block(block);
    }
  };
  const auto remove_of = [&](StreamBlocks& blocks) {
    remove_from(blocks.small);
    remove_from(blocks.large);
  };
  remove_of(default_);
  for (auto& [stream, blocks] : others_) remove_of(*blocks);
  return pointers;
}

PoolStatistics& BlockPool::statistics() {
  const auto sample = [this](bool small) {
    const auto pick = [small](Tally& tally) -> Counter& { return small ? tally.small : tally.large; };
    const Totals& sum = totals(small);
    pick(statistics_.inactive_split).set(sum.blocks - pick(statistics_.active).current - sum.free_segments);
    pick(statistics_.inactive_split_bytes)
        .set(pick(statistics_.reserved_bytes).current - pick(statistics_.active_bytes).current -
             sum.free_segment_bytes);
  };
  sample(true);
  sample(false);
  for (Tally* tally : {&statistics_.inactive_split, &statistics_.inactive_split_bytes}) {
    tally->all.set(tally->small.current + tally->large.current);
  }
  return statistics_;
}

size_t BlockPool::largest_free() const {
  size_t largest = 0;
  const auto look = [&largest](const StreamBlocks& blocks) {
    if (!blocks.small.empty()) largest = std::max(largest, (*blocks.small.rbegin())->size);
    if (!blocks.large.empty()) largest = std::max(largest, (*blocks.large.rbegin())->size);
  };
  look(default_);
  for (const auto& [stream, blocks] : others_) look(*blocks);
  return largest;
}

int64_t BlockPool::count_host_views() const {
  int64_t count = 0;
  for (const auto& slab : slabs_) {
    count += std::count_if(slab.get(), slab.get() + kSlab, [](const Block& block) {
      return block.host_view.load(std::memory_order_relaxed);
    });
  }
  return count;
}

Block* BlockPool::new_block(StreamBlocks& blocks, void* pointer, size_t size, bool small) {
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
  block->home = &blocks;
  block->small = small;
  block->previous = block->next = nullptr;
  table_.set(pointer, block);
  ++totals(small).blocks;
  return block;
}

void BlockPool::drop_block(Block* block) {
  table_.set(block->pointer, nullptr);
  --totals(block->small).blocks;
  block->state = BlockState::kUsed;  // never merged while it lies in the list
  block->below = unused_;
  unused_ = block;
}

}  // namespace isthmus::memory
