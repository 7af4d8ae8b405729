#include "memory/policies/free_bins.h"

#include <algorithm>
#include <bit>

namespace isthmus::memory {

// The power of two and the three bits below it, of the size in granules.
size_t FreeBins::index_of(size_t size) {
  const size_t granules = std::min(size, kRequestLimit) / kGranule;
  const auto power = static_cast<size_t>(std::bit_width(granules | 1) - 1);
  const size_t below = power >= 3 ? granules >> (power - 3) : granules << (3 - power);
  return power * 8 + (below & 7);
}

FreeBins::Bin::const_iterator FreeBins::find(const Bin& bin, const Block* block) {
  return std::find_if(bin.begin(), bin.end(), [block](const Entry& each) {
    return each.size > block->size || (each.size == block->size && each.block->pointer >= block->pointer);
  });
}

void FreeBins::insert(Block* block) {
  const size_t index = index_of(block->size);
  Bin& bin = bins_[index];
  bin.insert(find(bin, block), {block->size, block});
  occupied_[index / 64] |= uint64_t{1} << index % 64;
}

void FreeBins::erase(const Block* block) {
  const size_t index = index_of(block->size);
  Bin& bin = bins_[index];
  bin.erase(std::find_if(bin.begin(), bin.end(), [block](const Entry& each) { return each.block == block; }));
  if (bin.empty()) occupied_[index / 64] &= ~(uint64_t{1} << index % 64);
}

Block* FreeBins::smallest(size_t size) const {
  const size_t index = index_of(size);
  for (const Entry& each : bins_[index])
    if (each.size >= size) return each.block;
  const size_t next = index + 1;
  if (next == kBins) return nullptr;
  uint64_t bits = occupied_[next / 64] & (~uint64_t{0} << next % 64);
  for (size_t word = next / 64;; bits = occupied_[word]) {
    if (bits != 0) return bins_[word * 64 + static_cast<size_t>(std::countr_zero(bits))].front().block;
    if (++word == kWords) return nullptr;
  }
}

Block* FreeBins::largest() const {
  for (size_t word = kWords; word-- > 0;)
    if (const uint64_t bits = occupied_[word]; bits != 0)
      return bins_[word * 64 + static_cast<size_t>(std::bit_width(bits) - 1)].back().block;
  return nullptr;
}

}  // namespace isthmus::memory
