// Free blocks by size, for best fit in a few instructions: eight bins for each power of two, each in order.
#pragma once

#include <array>
#include <vector>

#include "memory/block.h"

namespace isthmus::memory {

class FreeBins {
 public:
  void insert(Block* block);
  // The block must have the size it was inserted with.
  void erase(const Block* block);
  // The smallest block of at least this many bytes, at the lowest address among equals; or null.
  Block* smallest(size_t size) const;
  Block* largest() const;

 private:
  static constexpr size_t kBins = 8 * 56, kWords = kBins / 64;
  struct Entry {
    size_t size;
    Block* block;
  };
  using Bin = std::vector<Entry>;

  static size_t index_of(size_t size);
  static Bin::const_iterator find(const Bin& bin, const Block* block);

  std::array<Bin, kBins> bins_;
  std::array<uint64_t, kWords> occupied_{};  // a bit for each bin
};

}  // namespace isthmus::memory
