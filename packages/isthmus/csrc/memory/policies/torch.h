// PyTorch's public policy: the constants, rounding and splitting of its CUDA caching allocator, with its
// options, expandable segments included.
#pragma once

#include <map>

#include "memory/policies/tree.h"

namespace isthmus::memory {

class TorchPolicy final : public TreePolicy {
 public:
  explicit TorchPolicy(const PolicyContext& context) : TreePolicy(context, /*with_bins=*/false) {}

  Growth growth(int64_t stream, size_t requested) override;
  std::vector<Range> remove_free(size_t need) override;

 protected:
  Block* place(int64_t stream, Range range, size_t requested) override;
  size_t round_size(size_t requested) const override;
  bool serves(const Block* block, size_t size) const override;
  bool splits(const Block* block, size_t size) const override;

 private:
  // An expandable segment of one stream and pool. Its blocks are in order of address, unmapped ones included.
  struct Expandable {
    char* base = nullptr;           // known once the first range is mapped
    std::map<void*, Block*> holes;  // kUnmapped blocks by address
    size_t step = 0;                // it grows by multiples of it while there is enough
    bool small = false;
  };

  int expandable_of(int64_t stream, bool small);
  void make_hole(Expandable& expandable, Block* block);
  void unmap(int index, Block* block, std::vector<Range>& ranges);

  std::vector<Expandable> expandables_;
  std::map<std::pair<int64_t, bool>, int> expandable_index_;
};

}  // namespace isthmus::memory
