// Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as
// easy as 1, 2, 3" (SC 2011): a seed gives a sequence of 32-bit words, and any word of it without those
// before.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>

namespace isthmus::philox {

constexpr uint64_t kWords = 4;  // words of one block

using Block = std::array<uint32_t, kWords>;

// The bijection itself: ten rounds over the counter.
inline Block block(Block counter, std::array<uint32_t, 2> key) noexcept {
  for (int round = 0; round < 10; ++round) {
    const uint64_t first = uint64_t{0xD2511F53} * counter[0];
    const uint64_t second = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(second >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(second),
               static_cast<uint32_t>(first >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(first)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// Part of the sequence of a seed, from an offset on. The offset counts words and is a multiple of kWords.
struct Sequence {
  uint64_t seed, offset;

  // Words kWords * index and on, counted from offset.
  Block operator[](uint64_t index) const noexcept {
    const uint64_t counter = offset / kWords + index;
    return block({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  }
};

// Position of a generator in the sequence of its seed.
class Position {
 public:
  Sequence get() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return now_;
  }
  void set(Sequence to) {
    std::lock_guard<std::mutex> lock(mutex_);
    now_ = to;
  }
  // The sequence from here on; the offset moves past the words, to a multiple of kWords.
  Sequence take(uint64_t words) {
    std::lock_guard<std::mutex> lock(mutex_);
    const Sequence taken = now_;
    now_.offset += (words + kWords - 1) / kWords * kWords;
    return taken;
  }

 private:
  mutable std::mutex mutex_;
  Sequence now_{0, 0};
};

}  // namespace isthmus::philox
