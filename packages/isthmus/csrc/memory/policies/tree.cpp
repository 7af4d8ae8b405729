#include "memory/policies/tree.h"

#include <algorithm>

namespace isthmus::memory {

TreePolicy::TreePolicy(const PolicyContext& context, bool with_bins)
    : Policy(context), with_bins_(with_bins) {
  default_.memory = memory_;
  default_.policy = this;
}

FreeTree& TreePolicy::tree_of(Block* block) {
  auto& home = static_cast<TreePool&>(*block->home);
  return block->small ? home.small : home.large;
}

Growth TreePolicy::growth(int64_t /*stream*/, size_t requested) {
  const size_t size = round_size(requested);
  if (size <= kSmallLimit) return {kSmallSegment, size};
  if (size < kOwnSegmentLimit) return {kLargeSegment, size};
  return {round_to(size, kOwnSegmentRound), size};
}

Block* TreePolicy::find(int64_t stream, size_t requested) {
  TreePool& blocks = pool(stream);
  const size_t size = round_size(requested);
  if (with_bins_ && size <= kSmallLimit) {
    Block*& top = blocks.bins[size / kGranule];
    if (Block* block = top) {
      top = block->below;
      binned_bytes_ -= block->size;
      count_free(block, -1);
      return block;
    }
  }
  return carve(is_small(size) ? blocks.small : blocks.large, size);
}

Block* TreePolicy::find_any(int64_t stream, size_t requested) {
  const size_t size = round_size(requested);
  return is_small(size) ? carve(pool(stream).large, size) : nullptr;
}

Block* TreePolicy::carve(FreeTree& tree, size_t size) {
  Block wanted;
  wanted.size = size;
  const auto found = tree.lower_bound(&wanted);
  if (found == tree.end() || !serves(*found, size)) return nullptr;
  Block* block = *found;
  erase_free(block);
  split(block, size);
  return block;
}

void TreePolicy::put(Block* block) {
  if (!with_bins_ || !block->small) return insert_free(block);
  Block*& top = static_cast<TreePool*>(block->home)->bins[block->size / kGranule];
  block->state = BlockState::kKept;
  block->below = top;
  top = block;
  binned_bytes_ += block->size;
  count_free(block, 1);
}

void TreePolicy::count_free(const Block* block, int sign) {
  if (block->whole_segment() && !block->small) {
    whole_bytes_ += static_cast<size_t>(sign * static_cast<int64_t>(block->size));
  }
  count_inactive_split(block, sign);
}

Block* TreePolicy::place(int64_t stream, Range range, size_t requested) {
  const size_t size = round_size(requested);
  Block* block = segment_block(pool(stream), range, is_small(size));
  split(block, size);
  return block;
}

Block* TreePolicy::segment_block(TreePool& pool, Range range, bool small) {
  count_segment(small, range.bytes);
  return new_block(pool, range.pointer, range.bytes, small);
}

// A large block keeps a remainder of up to 1 MiB, which could not serve a large request; a small one none,
// so that the blocks of a bin have one size.
bool TreePolicy::splits(const Block* block, size_t size) const {
  const size_t rest = block->size - size;
  return block->small ? rest > 0 : rest > kSmallLimit;
}

void TreePolicy::split(Block* block, size_t size) {
  if (splits(block, size)) insert_free(cut(block, size));
}

Block* TreePolicy::cut(Block* block, size_t size) {
  Block* rest =
      new_block(*block->home, static_cast<char*>(block->pointer) + size, block->size - size, block->small);
  block->size = size;
  rest->previous = block;
  rest->next = block->next;
  if (rest->next != nullptr) rest->next->previous = rest;
  block->next = rest;
  return rest;
}

void TreePolicy::absorb(Block* block) {
  Block* next = block->next;
  block->size += next->size;
  block->next = next->next;
  if (block->next != nullptr) block->next->previous = block;
  drop_block(next);
}

void TreePolicy::insert_free(Block* block) {
  if (block->next != nullptr && block->next->state == BlockState::kFree) {
    erase_free(block->next);
    absorb(block);
  }
  if (block->previous != nullptr && block->previous->state == BlockState::kFree) {
    block = block->previous;
    erase_free(block);
    absorb(block);
  }
  block->state = BlockState::kFree;
  list_free(block);
  count_free(block, 1);
}

void TreePolicy::erase_free(Block* block) {
  unlist_free(block);
  block->state = BlockState::kUsed;  // else its new neighbours would merge with it
  count_free(block, -1);
}

void TreePolicy::flush(TreePool& pool) {
  for (Block*& top : pool.bins) {
    while (Block* block = top) {
      top = block->below;
      binned_bytes_ -= block->size;
      count_free(block, -1);
      insert_free(block);
    }
  }
}

// Bins never give a size to another size. A quarter of the small memory is where merging pays: each flush
// then yields enough to be rare.
void TreePolicy::compact(int64_t stream, bool all) {
  if (all) {
    put_cooled();
    for_each_pool([this](TreePool& each) { flush(each); });
    return;
  }
  if (binned_bytes_ > static_cast<size_t>(statistics_.reserved_bytes.small.current) / 4) flush(pool(stream));
}

std::vector<Range> TreePolicy::remove_free(size_t need) {
  std::vector<Block*> free;
  for_each_pool([&free](TreePool& pool) {
    for (const FreeTree* tree : {&pool.small, &pool.large})
      std::copy_if(tree->begin(), tree->end(), std::back_inserter(free),
                   [](const Block* block) { return block->whole_segment(); });
  });
  if (need > 0) {  // the smallest sufficient one, or the largest ones until sufficient
    std::sort(free.begin(), free.end(), [](Block* a, Block* b) { return BySize()(b, a); });
    const auto enough = std::partition_point(free.begin(), free.end(),
                                             [need](const Block* block) { return block->size >= need; });
    if (enough != free.begin()) free = {*(enough - 1)};
  }
  std::vector<Range> ranges;
  size_t removed = 0;
  for (Block* block : free) {
    if (need > 0 && removed >= need) break;
    removed += block->size;
    ranges.push_back({block->pointer, block->size, -1, block->home->stream});
    erase_free(block);
    remove_segment(block);
  }
  return ranges;
}

void TreePolicy::remove_segment(Block* block) {
  count_segment_gone(block->small, block->size);
  drop_block(block);
}

size_t TreePolicy::largest_free() const {
  size_t largest = 0;
  const auto look = [&largest](const TreePool& pool) {
    if (!pool.small.empty()) largest = std::max(largest, (*pool.small.rbegin())->size);
    if (!pool.large.empty()) largest = std::max(largest, (*pool.large.rbegin())->size);
  };
  look(default_);
  for (const auto& [stream, pool] : others_) look(*pool);
  return largest;
}

}  // namespace isthmus::memory
