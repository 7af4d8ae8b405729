// A paged cache's keys and values in bfloat16 with sums in float, by the matrix unit of the processor.
#pragma once

#include "kernels/attention_tiles.h"
#include "kernels/paged_attention.h"

namespace isthmus::kernels::paged {

using attention::filled;
using attention::Half;

// Computes tasks, one part of the keys at a time; C is the type of the cache, whose numbers bfloat16 holds.
template <typename C>
class TileWorker : public PartRows<Half, Half> {
  using Base = PartRows<Half, Half>;

 public:
  TileWorker(const Call<float>& call, Cache<const C> keys, Cache<const C> values, int64_t rows)
      : Base(call, (rows + kRows - 1) / kRows * kRows, pitch(call), kRows),
        keys_(keys),
        values_(values),
        features_(filled(call.features)),
        query_((rows + kRows - 1) / kRows * kRows * features_),
        key_panel_(features_ / 2 * kPart),
        value_panel_(kPart / 2 * pitch_),
        staged_(kPart * std::max(features_, pitch_)),
        weights_((rows + kRows - 1) / kRows * kRows * kPart) {
    std::fill_n(query_.get(), (rows + kRows - 1) / kRows * kRows * features_, Half(0));
    std::fill_n(weights_.get(), (rows + kRows - 1) / kRows * kRows * kPart, Half(0));
  }
  ~TileWorker() { at::native::cpublas::brgemm_release(true); }

  static int64_t pitch(const Call<float>& call) { return filled(call.value_features); }

  void begin(const Task& task, const Half* query, int64_t token, int64_t head) {
    Base::begin(task);
    for_queries(query, token, head, [&](int64_t row, const Half* from) {
      std::copy_n(from, call_.features, query_.get() + row * features_);
    });
  }

  // Computes a part of the keys for every row.
  void compute(int64_t part) {
    first_ = part * kPart;
    const Range all = seen(0, rows());
    pack_keys(all);
    pack_values(all);
    for (int64_t r = 0; r < rows(); r += kRows) {
      const int64_t count = std::min(kRows, rows() - r), many = in_tiles(count);
      const Range tile = seen(r, count);
      const int64_t first = tile.first / kColumns * kColumns,
                    last = std::min((tile.last + kColumns - 1) / kColumns * kColumns, kPart);
      float* x = scores_.get() + r * kPart;
      Half* weights = weights_.get() + r * kPart;
      if (first < last)
        attention::multiply_tiles(many, last - first, features_, query_.get() + r * features_, features_,
                                  key_panel_.get() + first, kPart, false, x + first, kPart);
      for (int64_t i = 0; i < count; ++i) exponentials(r + i, weights + i * kPart);
      for (int64_t i = 0; i < count; ++i) {  // what exponentials() leaves of whole tiles
        std::fill(weights + i * kPart + first, weights + i * kPart + tile.first, Half(0));
        std::fill(weights + i * kPart + tile.last, weights + i * kPart + last, Half(0));
      }
      if (first < last)
        attention::multiply_tiles(many, pitch_, last - first, weights + first, kPart,
                                  value_panel_.get() + first / 2 * pitch_, pitch_, false,
                                  total_.get() + r * pitch_, pitch_);
      else
        std::fill_n(total_.get() + r * pitch_, count * pitch_, 0.0f);
    }
  }

 private:
  static constexpr int64_t kRows = 64, kColumns = 64;

  // Rows that the matrix unit computes for so many.
  static int64_t in_tiles(int64_t rows) { return rows <= 16 ? 16 : rows <= 32 ? 32 : kRows; }

  // The rows of keys or values from first up to last of this part, contiguous; and zeros up to whole tiles.
  const Half* stage(const Cache<const C>& cache, int64_t first, int64_t last, int64_t features,
                    int64_t pitch) {
    Half* to = staged_.get();
    for_blocks(cache, first, last, [&](int64_t, int64_t count, const C* rows) {
      for (int64_t i = 0; i < count; ++i, to += pitch) {
        if constexpr (std::is_same_v<C, Half>)
          std::copy_n(rows + i * cache.token, features, to);
        else
          for (int64_t d = 0; d < features; ++d)
            to[d] = static_cast<Half>(static_cast<float>(rows[i * cache.token + d]));
        std::fill(to + features, to + pitch, Half(0));
      }
    });
    return staged_.get();
  }

  // Whether pairs of features can be read where they lie.
  bool has_pairs(const Cache<const C>& cache, int64_t features, int64_t multiple) const {
    return std::is_same_v<C, Half> && features % 2 == 0 && features == filled(features) &&
           cache.token % 2 == 0 && cache.size % multiple == 0;
  }

  void pack_keys(Range all) {
    const int64_t begin = all.first / kColumns * kColumns,
                  end = (all.last + kColumns - 1) / kColumns * kColumns;
    if (all.first > begin || all.last < end)
      for (int64_t d = 0; d < features_ / 2; ++d)
        std::fill(key_panel_.get() + d * kPart + begin, key_panel_.get() + d * kPart + end, 0);
    fetch(values_, all.first, all.last, call_.value_features);
    const auto turn = [&](const void* rows, int64_t step, int64_t key, int64_t count) {
      at::vec::transpose_mxn<float>(static_cast<const float*>(rows), step / 2,
                                    reinterpret_cast<float*>(key_panel_.get()) + key, kPart,
                                    static_cast<int>(count), static_cast<int>(features_ / 2));
    };
    if (has_pairs(keys_, call_.features, 16))
      for_blocks(keys_, all.first, all.last,
                 [&](int64_t key, int64_t count, const C* rows) { turn(rows, keys_.token, key, count); });
    else
      turn(stage(keys_, all.first, all.last, call_.features, features_), features_, all.first,
           all.last - all.first);
  }

  // Two values of each feature side by side, those of an even key first.
  void pack_values(Range all) {
    const int64_t begin = all.first / kColumns * kColumns,
                  end = (all.last + kColumns - 1) / kColumns * kColumns;
    std::fill(value_panel_.get() + begin / 2 * pitch_, value_panel_.get() + (all.first + 1) / 2 * pitch_, 0);
    std::fill(value_panel_.get() + all.last / 2 * pitch_, value_panel_.get() + end / 2 * pitch_, 0);
    const auto pair = [&](const Half* one, const Half* two, int64_t key) {
      uint32_t* to = value_panel_.get() + key / 2 * pitch_;
      const auto *low = reinterpret_cast<const uint16_t*>(one),
                 *high = reinterpret_cast<const uint16_t*>(two);
      for (int64_t d = 0; d < pitch_; ++d)
        to[d] =
            (low == nullptr ? 0u : low[d]) | (high == nullptr ? 0u : static_cast<uint32_t>(high[d]) << 16);
    };
    const auto pairs = [&](const Half* rows, int64_t step, int64_t key, int64_t count) {
      int64_t i = 0;
      if (key % 2 == 1 && count > 0) pair(nullptr, rows, key), i = 1;
      for (; i + 1 < count; i += 2) pair(rows + i * step, rows + (i + 1) * step, key + i);
      if (i < count) pair(rows + i * step, nullptr, key + i);
    };
    if constexpr (std::is_same_v<C, Half>)
      if (has_pairs(values_, call_.value_features, 2)) {
        for_blocks(values_, all.first, all.last, [&](int64_t key, int64_t count, const C* rows) {
          pairs(rows, values_.token, key, count);
        });
        return;
      }
    pairs(stage(values_, all.first, all.last, call_.value_features, pitch_), pitch_, all.first,
          all.last - all.first);
  }

  const Cache<const C> keys_, values_;
  const int64_t features_;
  const Scratch<Half> query_;
  const Scratch<uint32_t> key_panel_, value_panel_;
  const Scratch<Half> staged_, weights_;
};

}  // namespace isthmus::kernels::paged
