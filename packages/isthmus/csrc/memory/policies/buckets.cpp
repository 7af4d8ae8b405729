#include "memory/policies/buckets.h"

#include <algorithm>

namespace isthmus::memory {
namespace {

constexpr size_t kSharedLimit = size_t{1} << 20;  // larger blocks have a segment of their own
constexpr size_t kSharedSegment = size_t{2} << 20;
constexpr size_t kOwnRound = size_t{2} << 20;

}  // namespace

// Index in granules: up to 8 one bucket each, then eight for each power of two.
int BucketPolicy::index_of(size_t requested) {
  const size_t granules = (requested + kGranule - 1) / kGranule;
  if (granules <= 8) return static_cast<int>(granules) - 1;
  const int power = 63 - __builtin_clzll(granules - 1);  // 2^power < granules <= 2^(power + 1)
  const size_t step = size_t{1} << (power - 3);
  const size_t steps = (granules - (size_t{1} << power) + step - 1) / step;
  return 8 * (power - 2) + static_cast<int>(steps) - 1;
}

size_t BucketPolicy::size_of(int index) {
  if (index < 8) return static_cast<size_t>(index + 1) * kGranule;
  const int power = index / 8 + 2;
  const auto steps = static_cast<size_t>(index % 8 + 1);
  return ((size_t{1} << power) + (steps << (power - 3))) * kGranule;
}

Block* BucketPolicy::find(int64_t stream, size_t requested) {
  Block*& top = pool_of(buckets_, stream).tops[static_cast<size_t>(index_of(requested))];
  Block* block = top;
  if (block == nullptr) return nullptr;
  top = block->below;
  count_inactive_split(block, -1);
  return block;
}

void BucketPolicy::put(Block* block) {
  Block*& top = static_cast<Buckets*>(block->home)->tops[block->tag];
  block->state = BlockState::kKept;
  block->below = top;
  top = block;
  count_inactive_split(block, 1);
}

Growth BucketPolicy::growth(int64_t /*stream*/, size_t requested) {
  const size_t size = size_of(index_of(requested));
  if (size <= kSharedLimit) return {kSharedSegment, size};
  return {round_to(size, kOwnRound), size};
}

// A shared segment becomes blocks of the one bucket that needed it.
Block* BucketPolicy::place(int64_t stream, Range range, size_t requested) {
  Buckets& home = pool_of(buckets_, stream);
  const int index = index_of(requested);
  const size_t size = size_of(index);
  const bool small = size <= kSharedLimit;
  count_segment(small, range.bytes);
  Block* const first = new_block(home, range.pointer, small ? size : range.bytes, small);
  first->tag = static_cast<uint32_t>(index);
  Block* last = first;
  std::vector<Block*> others;
  while (static_cast<char*>(range.pointer) + range.bytes >= last->end() + size) {
    Block* block = new_block(home, last->end(), size, small);
    block->tag = first->tag;
    block->previous = last;
    last->next = block;
    last = block;
    others.push_back(block);
  }
  last->size += static_cast<size_t>(static_cast<char*>(range.pointer) + range.bytes - last->end());
  for (auto it = others.rbegin(); it != others.rend(); ++it) put(*it);  // the lowest address on top
  return first;
}

// A segment is free when all its blocks are.
std::vector<Range> BucketPolicy::remove_free(size_t need) {
  put_cooled();
  std::vector<Range> ranges;
  size_t removed = 0;
  const auto is_free = [](const Block* block) { return block->state == BlockState::kKept; };
  std::vector<Block*> firsts;
  for_each_block([&](Block& block) {
    if (block.previous != nullptr) return;
    const Block* each = &block;
    while (each != nullptr && is_free(each)) each = each->next;
    if (each == nullptr) firsts.push_back(&block);
  });
  std::sort(firsts.begin(), firsts.end(), [](Block* a, Block* b) { return BySize()(b, a); });
  for (Block* first : firsts) {
    if (need > 0 && removed >= need) break;
    auto& tops = static_cast<Buckets*>(first->home)->tops;
    size_t bytes = 0;
    const bool small = first->small;
    const int64_t stream = first->home->stream;
    void* const pointer = first->pointer;
    for (Block* block = first; block != nullptr;) {
      Block** link = &tops[block->tag];
      while (*link != block) link = &(*link)->below;
      *link = block->below;
      count_inactive_split(block, -1);
      bytes += block->size;
      Block* const next = block->next;
      if (next != nullptr) next->previous = block;  // so that the last one still counts as split
      drop_block(block);
      block = next;
    }
    count_segment_gone(small, bytes);
    ranges.push_back({pointer, bytes, -1, stream});
    removed += bytes;
  }
  return ranges;
}

size_t BucketPolicy::largest_free() const {
  size_t largest = 0;
  for_each_block([&largest](const Block& block) {
    if (block.state == BlockState::kKept) largest = std::max(largest, block.size);
  });
  return largest;
}

}  // namespace isthmus::memory
