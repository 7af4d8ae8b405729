// A paged cache's keys and values in the type computed in: by register tiles, for every dtype and processor.
#pragma once

#include "kernels/paged_attention.h"
#include "kernels/register_tiles.h"

namespace isthmus::kernels::paged {

// Computes tasks, one part of the keys at a time; T is the type of queries, C that of the cache.
template <typename T, typename C>
class WideWorker : public PartRows<T, kernels::Wide<T>> {
  using Base = PartRows<T, kernels::Wide<T>>;
  using Base::call_, Base::first_, Base::pitch_, Base::scores_, Base::seen, Base::total_;

 public:
  using W = typename Base::W;
  using Base::rows;

  WideWorker(const Call<W>& call, Cache<const C> keys, Cache<const C> values, int64_t rows)
      : Base(call, rows, pitch(call), tiles::kRows),
        keys_(keys),
        values_(values),
        query_(rows * call.features),
        panel_(call.features * kColumns),
        staged_(kColumns * std::max(call.features, pitch_)),
        rows_(kPart) {}

  // Columns of a row of values in the type computed in: a whole number of vectors.
  static int64_t pitch(const Call<W>& call) { return (call.value_features + kSize - 1) / kSize * kSize; }

  void begin(const Task& task, const T* query, int64_t token, int64_t head) {
    Base::begin(task);
    Base::for_queries(query, token, head, [&](int64_t row, const T* from) {
      widen(from, call_.features, query_.get() + row * call_.features);
    });
  }

  // Computes a part of the keys for every row.
  void compute(int64_t part) {
    first_ = part * kPart;
    multiply_keys();
    for (int64_t r = 0; r < rows(); ++r) Base::exponentials(r, scores_.get() + r * kPart);
    std::fill_n(total_.get(), rows() * pitch_, W(0));
    add_values();
  }

 private:
  static constexpr int64_t kSize = Base::kSize, kColumns = tiles::kPanel<W>;

  void multiply_keys() {
    const Range all = seen(0, rows());
    for (int64_t begin = all.first / kColumns * kColumns; begin < all.last; begin += kColumns) {
      const int64_t first = std::max(begin, all.first), last = std::min(begin + kColumns, all.last);
      Base::fetch(keys_, last, std::min(last + kColumns, all.last), call_.features);
      Base::fetch(values_, first, last, call_.value_features);
      pack(first, last, begin);
      for (int64_t r = 0; r < rows(); r += tiles::kRows) {
        const int64_t count = std::min<int64_t>(tiles::kRows, rows() - r);
        const Range tile = seen(r, count);
        if (tile.first >= begin + kColumns || tile.last <= begin) continue;
        tiles::multiply_rows<W>(count, query_.get() + r * call_.features, call_.features, panel_.get(),
                                call_.features, scores_.get() + r * kPart + begin, kPart);
      }
    }
  }

  // Turns the features of keys first up to last into a panel whose columns begin at a key.
  void pack(int64_t first, int64_t last, int64_t begin) {
    const int64_t features = call_.features;
    if (last - first < kColumns) std::fill_n(panel_.get(), features * kColumns, W(0));
    if constexpr (std::is_same_v<C, W>) {
      if (keys_.size % kSize == 0) {
        Base::for_blocks(keys_, first, last, [&](int64_t key, int64_t count, const C* rows) {
          turn(rows, keys_.token, key - begin, count);
        });
        return;
      }
    }
    Base::for_blocks(keys_, first, last, [&](int64_t key, int64_t count, const C* rows) {
      for (int64_t i = 0; i < count; ++i)
        widen(rows + i * keys_.token, features, staged_.get() + (key + i - first) * features);
    });
    turn(staged_.get(), features, first - begin, last - first);
  }

  void turn(const W* rows, int64_t step, int64_t column, int64_t count) {
    at::vec::transpose_mxn<W>(rows, step, panel_.get() + column, kColumns, static_cast<int>(count),
                              static_cast<int>(call_.features));
  }

  void add_values() {
    const Range all = seen(0, rows());
    // A few rows read the values where they lie; for more they are brought together first.
    const bool in_place =
        std::is_same_v<C, W> && call_.value_features == pitch_ && rows() <= 2 * tiles::kRows;
    const int64_t step = in_place ? kPart : kColumns;
    for (int64_t begin = all.first / step * step; begin < all.last; begin += step) {
      const int64_t first = std::max(begin, all.first), last = std::min(begin + step, all.last);
      point_to_values(first, last, in_place);
      for (int64_t r = 0; r < rows(); r += tiles::kRows) {
        const int64_t count = std::min<int64_t>(tiles::kRows, rows() - r);
        const Range tile = seen(r, count);
        const int64_t from = std::max(first, tile.first), to = std::min(last, tile.last);
        if (from >= to) continue;
        tiles::add_rows<W>(count, scores_.get() + r * kPart + from, kPart, rows_.data() + from - first,
                           pitch_, to - from, total_.get() + r * pitch_, pitch_);
      }
    }
  }

  // Addresses of the values of keys first up to last in the type computed in.
  void point_to_values(int64_t first, int64_t last, bool in_place) {
    Base::for_blocks(values_, first, last, [&](int64_t key, int64_t count, const C* rows) {
      for (int64_t j = key - first; j < key - first + count; ++j, rows += values_.token) {
        if constexpr (std::is_same_v<C, W>) {
          if (in_place) {
            rows_[j] = rows;
            continue;
          }
        }
        W* copy = staged_.get() + j * pitch_;
        widen(rows, call_.value_features, copy);
        std::fill(copy + call_.value_features, copy + pitch_, W(0));
        rows_[j] = copy;
      }
    });
  }

  const Cache<const C> keys_, values_;
  const Scratch<W> query_, panel_, staged_;
  std::vector<const W*> rows_;
};

}  // namespace isthmus::kernels::paged
