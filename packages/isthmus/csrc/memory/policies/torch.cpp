#include "memory/policies/torch.h"

#include <algorithm>

namespace isthmus::memory {
namespace {

// A step of the range [2^n, 2^(n+1)) that is cut into divisions equal steps.
size_t round_to_division(size_t size, size_t divisions) {
  if (divisions <= 1 || size <= 4) return size;
  size_t power = 1;
  while (power * 2 <= size) power *= 2;
  if (power == size) return size;
  return power + round_to(size - power, std::max<size_t>(power / divisions, 1));
}

}  // namespace

size_t TorchPolicy::round_size(size_t requested) const {
  const size_t size = round_to(requested, kGranule);
  size_t index = 0;  // 0 for up to 1 MiB, then one for each power of two
  while (index + 1 < options_.divisions.size() && (size_t{2} << 20) << index <= size) ++index;
  const size_t divisions = options_.divisions[index];
  return divisions > 1 && requested > kGranule * divisions
             ? round_to(round_to_division(requested, divisions), kGranule)
             : size;
}

bool TorchPolicy::serves(const Block* block, size_t size) const {
  if (options_.expandable) return true;
  if (size < options_.max_split) return block->small || block->size < options_.max_split;
  return block->size < size + options_.max_rounding;
}

bool TorchPolicy::splits(const Block* block, size_t size) const {
  const size_t rest = block->size - size;
  if (block->small || options_.expandable) return rest >= kGranule;
  return size < options_.max_split && rest > kSmallLimit;
}

// ---- expandable segments

int TorchPolicy::expandable_of(int64_t stream, bool small) {
  const auto [found, is_new] =
      expandable_index_.try_emplace({stream, small}, static_cast<int>(expandables_.size()));
  if (is_new) {
    Expandable& expandable = expandables_.emplace_back();
    expandable.small = small;
    expandable.step = round_to(small ? kSmallSegment : kLargeSegment, options_.mapping_granule);
  }
  return found->second;
}

// Memory for the first hole that suffices with its free neighbours; the last hole always does.
Growth TorchPolicy::growth(int64_t stream, size_t requested) {
  if (!options_.expandable) return TreePolicy::growth(stream, requested);
  const size_t size = round_size(requested);
  const int index = expandable_of(stream, size <= kSmallLimit);
  const Expandable& expandable = expandables_[static_cast<size_t>(index)];
  const size_t unit = options_.mapping_granule;
  if (expandable.base == nullptr) {
    return {round_to(size, expandable.step), round_to(size, unit), index, 0, unit};
  }
  const auto free_size = [](const Block* block) {
    return block != nullptr && block->state == BlockState::kFree ? block->size : 0;
  };
  for (const auto& [pointer, hole] : expandable.holes) {
    const size_t before = free_size(hole->previous);
    if (before + hole->size + free_size(hole->next) < size) continue;
    const size_t need = size - std::min(before, size - 1);
    const size_t bytes = std::min(round_to(need, expandable.step), hole->size);
    const size_t minimum = std::min(round_to(need, unit), hole->size);
    return {bytes, minimum, index, static_cast<size_t>(static_cast<char*>(pointer) - expandable.base), unit};
  }
  return {};  // out of addresses
}

Block* TorchPolicy::place(int64_t stream, Range range, size_t requested) {
  if (range.expandable < 0) return TreePolicy::place(stream, range, requested);
  Expandable& expandable = expandables_[static_cast<size_t>(range.expandable)];
  TreePool& blocks = pool(stream);
  if (expandable.base == nullptr) {
    expandable.base = static_cast<char*>(range.pointer);
    make_hole(expandable,
              new_block(blocks, range.pointer, options_.expandable_bytes / expandable.step * expandable.step,
                        expandable.small));
    count_segment(expandable.small, range.bytes);
  } else {
    count_reserved(expandable.small, static_cast<int64_t>(range.bytes));
  }
  const auto found = expandable.holes.find(range.pointer);
  Block* block = found->second;
  expandable.holes.erase(found);
  block->state = BlockState::kUsed;
  if (block->size > range.bytes) make_hole(expandable, cut(block, range.bytes));
  insert_free(block);
  return find(stream, requested);
}

void TorchPolicy::make_hole(Expandable& expandable, Block* block) {
  const auto is_hole = [](const Block* other) {
    return other != nullptr && other->state == BlockState::kUnmapped;
  };
  if (is_hole(block->next)) {
    expandable.holes.erase(block->next->pointer);
    absorb(block);
  }
  if (is_hole(block->previous)) {
    absorb(block->previous);
    return;
  }
  block->state = BlockState::kUnmapped;
  expandable.holes.emplace(block->pointer, block);
}

std::vector<Range> TorchPolicy::remove_free(size_t need) {
  if (!options_.expandable) return TreePolicy::remove_free(need);
  std::vector<Range> ranges;
  for (size_t i = 0; i < expandables_.size(); ++i) {
    std::vector<Block*> free;
    for_each_pool([&](TreePool& pool) {
      for (Block* block : expandables_[i].small ? pool.small : pool.large)
        if (expandable_index_[{pool.stream, expandables_[i].small}] == static_cast<int>(i))
          free.push_back(block);
    });
    for (Block* block : free) unmap(static_cast<int>(i), block, ranges);
  }
  return ranges;
}

// The whole units inside a free block lose their memory.
void TorchPolicy::unmap(int index, Block* block, std::vector<Range>& ranges) {
  Expandable& expandable = expandables_[static_cast<size_t>(index)];
  const size_t unit = options_.mapping_granule;
  const auto start = static_cast<size_t>(static_cast<char*>(block->pointer) - expandable.base);
  const size_t begin = round_to(start, unit), end = (start + block->size) / unit * unit;
  if (begin >= end) return;
  erase_free(block);
  Block* hole = begin > start ? cut(block, begin - start) : block;
  Block* rest = hole->size > end - begin ? cut(hole, end - begin) : nullptr;
  ranges.push_back({hole->pointer, hole->size, index, hole->home->stream});
  count_reserved(expandable.small, -static_cast<int64_t>(hole->size));
  make_hole(expandable, hole);
  if (hole != block) insert_free(block);
  if (rest != nullptr) insert_free(rest);
}

}  // namespace isthmus::memory
