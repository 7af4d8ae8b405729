#include "memory/policies/lifetime.h"

#include <algorithm>

namespace isthmus::memory {
namespace {

constexpr size_t kUnsplit = size_t{1800} * 1000 * 1000;
constexpr size_t kRestOfUnsplit = size_t{20} << 20;
constexpr size_t kBranches = 8;                   // branches of the history
constexpr size_t kLongest = size_t{1} << 20;      // record of a process that never ends a step
constexpr int64_t kLongPools = int64_t{1} << 62;  // added to a stream, the key of its long pool

}  // namespace

TreePool& LifetimePolicy::long_pool(int64_t stream) {
  TreePool& long_blocks = pool(stream ^ kLongPools);
  if (long_blocks.stream != stream) long_blocks.stream = stream;  // once: its blocks' owners read it unlocked
  return long_blocks;
}

const std::pair<LifetimePolicy::Clock, LifetimePolicy::Clock>* LifetimePolicy::nearest(const Step& step,
                                                                                       size_t size,
                                                                                       Clock now) {
  const auto found = step.lives.find(size);
  if (found == step.lives.end()) return nullptr;
  const auto& lives = found->second;
  const auto after = std::upper_bound(lives.begin(), lives.end(), std::make_pair(now, kNever));
  return after == lives.begin() ? nullptr : &*std::prev(after);
}

bool LifetimePolicy::is_long(size_t size) const {
  if (last_.lives.empty()) return in_forward_;
  const auto now = static_cast<Clock>(lives_.size());
  const auto* life = nearest(last_, size, now);
  Clock forward_end = last_.forward_end;
  for (auto step = history_.rbegin(); step != history_.rend() && life == nullptr; ++step) {
    life = nearest(*step, size, now);
    forward_end = step->forward_end;
  }
  if (life == nullptr) return false;
  return in_forward_ ? life->second > forward_end : life->second == kNever;
}

Block* LifetimePolicy::find(int64_t stream, size_t requested) {
  const size_t size = round_to(requested, kGranule);
  if (size <= kSmallLimit) return TreePolicy::find(stream, requested);
  Block* const block = is_long(size) ? find_long(stream, size) : find_short(stream, size);
  if (block != nullptr) note(block, size);
  return block;
}

Block* LifetimePolicy::find_long(int64_t stream, size_t size) {
  FreeTree& tree = long_pool(stream).large;
  Block wanted;
  wanted.size = round_to(size, kOwnSegmentRound);
  const auto found = std::find_if(tree.lower_bound(&wanted), tree.end(), [&wanted](const Block* block) {
    return block->size != wanted.size || block->whole_segment();
  });
  if (found == tree.end() || (*found)->size != wanted.size) return nullptr;
  Block* const block = *found;
  erase_free(block);
  return block;
}

Block* LifetimePolicy::find_short(int64_t stream, size_t size) {
  if (Block* block = carve(pool(stream).large, size)) return block;
  if (in_forward_) return nullptr;
  FreeTree& tree = long_pool(stream).large;
  Block wanted;
  wanted.size = size;
  const auto found = tree.lower_bound(&wanted);
  if (found == tree.end()) return nullptr;
  Block* const block = *found;
  if (block->size >= kUnsplit && block->size - size >= kRestOfUnsplit) return nullptr;
  erase_free(block);
  split(block, size);
  return block;
}

Growth LifetimePolicy::growth(int64_t stream, size_t requested) {
  const size_t size = round_to(requested, kGranule);
  if (size <= kSmallLimit || !is_long(size)) return TreePolicy::growth(stream, requested);
  return {round_to(size, kOwnSegmentRound), size};
}

Block* LifetimePolicy::place(int64_t stream, Range range, size_t requested) {
  const size_t size = round_to(requested, kGranule);
  if (size <= kSmallLimit) return TreePolicy::place(stream, range, requested);
  const bool to_keep_whole = is_long(size) && range.bytes <= round_to(size, kOwnSegmentRound);
  Block* const block =
      segment_block(to_keep_whole ? long_pool(stream) : pool(stream), range, /*small=*/false);
  if (!to_keep_whole) split(block, size);
  note(block, size);
  return block;
}

Block* LifetimePolicy::find_any(int64_t stream, size_t requested) {
  const size_t size = round_to(requested, kGranule);
  Block* block = carve(pool(stream).large, size);
  if (block == nullptr) block = carve(long_pool(stream).large, size);
  if (block != nullptr && size > kSmallLimit) note(block, size);
  return block;
}

void LifetimePolicy::note(Block* block, size_t size) {
  if (lives_.size() == kLongest) step();
  has_new_sizes_ |= last_.lives.count(size) == 0;
  lives_.push_back({size, kNever, block});
  block->tag = static_cast<uint32_t>(lives_.size());
  held_ += size;
  peak_ = std::max(peak_, held_);
}

void LifetimePolicy::put(Block* block) {
  close(block);
  TreePolicy::put(block);
}

void LifetimePolicy::cool(Block* block) { close(block); }

void LifetimePolicy::close(Block* block) {
  if (block->tag == 0) return;
  Life& life = lives_[block->tag - 1];
  block->tag = 0;
  life.end = static_cast<Clock>(lives_.size());
  life.block = nullptr;
  held_ -= life.size;
  if (in_forward_ && held_ < peak_ / 10 * 9) {
    in_forward_ = false;
    forward_end_ = life.end;
  }
}

bool LifetimePolicy::step() {
  const bool is_first = last_.lives.empty();
  if (has_new_sizes_ && !is_first) {
    if (history_.size() == kBranches) history_.erase(history_.begin());
    history_.push_back(std::move(last_));
  }
  last_ = Step{};
  last_.forward_end = in_forward_ ? static_cast<Clock>(lives_.size()) : forward_end_;
  for (Clock start = 0; start < lives_.size(); ++start) {
    const Life& life = lives_[start];
    last_.lives[life.size].emplace_back(start, life.end);
    if (life.block != nullptr) life.block->tag = 0;
  }
  lives_.clear();
  held_ = peak_ = 0;
  in_forward_ = true;
  has_new_sizes_ = false;
  return is_first;
}

}  // namespace isthmus::memory
