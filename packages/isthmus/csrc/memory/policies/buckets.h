// "bs": size buckets, eight for each power of two. A block serves only its own bucket and is neither split
// nor merged, so a request costs a few instructions and wastes at most an eighth; memory of one size
// never serves another. Blocks up to 1 MiB are cut from segments of 2 MiB.
#pragma once

#include <array>
#include <memory>
#include <unordered_map>

#include "memory/policy.h"

namespace isthmus::memory {

class BucketPolicy final : public Policy {
 public:
  using Policy::Policy;

  Growth growth(int64_t stream, size_t requested) override;
  std::vector<Range> remove_free(size_t need) override;
  size_t largest_free() const override;

 protected:
  Block* find(int64_t stream, size_t requested) override;
  void put(Block* block) override;
  Block* place(int64_t stream, Range range, size_t requested) override;

 private:
  static constexpr int kBuckets = 8 * 50;
  struct Buckets : StreamPool {
    std::array<Block*, kBuckets> tops{};
  };

  static int index_of(size_t requested);
  static size_t size_of(int index);

  std::unordered_map<int64_t, std::unique_ptr<Buckets>> buckets_;
};

}  // namespace isthmus::memory
