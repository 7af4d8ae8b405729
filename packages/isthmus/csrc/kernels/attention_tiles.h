// Products of blocks in bfloat16 with sums in float, by the matrix unit of the processor: operands are packed
// in its format, pairs of rows interleaved.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/native/CPUBlas.h>

#include <bit>
#include <cstring>

#include "kernels/attention.h"
#include "kernels/pieces.h"

namespace isthmus::kernels::attention {

using Half = at::BFloat16;

constexpr int64_t kTile = 32;  // to which every dimension of a packed block is filled up with zeros

inline int64_t filled(int64_t count) { return (count + kTile - 1) / kTile * kTile; }

// Whether this process can use the blocks below.
inline bool has_tiles() {
#if defined(CPU_CAPABILITY_AVX512)
  static const bool has = at::native::cpublas::could_pack(at::kBFloat16);
  return has;
#else
  return false;
#endif
}

// c = a @ b, or c += a @ b: a is [m, k] by rows, b packed [k / 2, n] pairs, c [m, n] by rows.
inline void multiply_tiles(int64_t m, int64_t n, int64_t k, const Half* a, int64_t a_pitch, const uint32_t* b,
                           int64_t b_pitch, bool add, float* c, int64_t c_pitch) {
  at::native::cpublas::brgemm(m, n, k, a_pitch, b_pitch, c_pitch, add, a, reinterpret_cast<const Half*>(b), c,
                              true);
}

// A token's features two by two: out[d / 2][token], the pitch being kept; count tokens, up to `filled` zeros.
inline void pack_turned(const Half* from, int64_t step, int64_t count, int64_t features, uint32_t* out,
                        int64_t pitch) {
  const int64_t all = filled(features) / 2;
  // Whole pairs by vectors, where a token is a whole number of them.
  const int64_t pairs = step % 2 == 0 ? features / 2 : 0;
  at::vec::transpose_mxn<float>(reinterpret_cast<const float*>(from), step / 2, reinterpret_cast<float*>(out),
                                pitch, static_cast<int>(count), static_cast<int>(pairs));
  for (int64_t d = pairs; d < all; ++d)
    for (int64_t t = 0; t < count; ++t) {
      const auto* at = reinterpret_cast<const uint16_t*>(from) + t * step + 2 * d;
      const uint32_t one = 2 * d < features ? at[0] : 0, two = 2 * d + 1 < features ? at[1] : 0;
      out[d * pitch + t] = one | two << 16;
    }
  for (int64_t d = 0; d < all; ++d) std::fill(out + d * pitch + count, out + d * pitch + filled(count), 0);
}

// Tokens two by two: out[token / 2][d].
inline void pack_pairs(const Half* from, int64_t step, int64_t count, int64_t features, uint32_t* out,
                       int64_t pitch) {
  const auto* bits = reinterpret_cast<const uint16_t*>(from);
  for (int64_t t = 0; t < filled(count); t += 2) {
    uint32_t* row = out + t / 2 * pitch;
    const uint16_t *one = bits + t * step, *two = one + step;
    int64_t d = 0;
    if (t + 1 < count)
      for (; d < features; ++d) row[d] = one[d] | static_cast<uint32_t>(two[d]) << 16;
    else if (t < count)
      for (; d < features; ++d) row[d] = one[d];
    std::fill(row + d, row + filled(features), 0);
  }
}

// Rows of float as bfloat16, rounded to nearest.
inline uint32_t rounded(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return value != value ? 0x7FC0u : (bits + 0x7FFFu + ((bits >> 16) & 1)) >> 16;
}

inline void pack_rows(const float* from, int64_t step, int64_t rows, int64_t columns, uint32_t* out,
                      int64_t pitch) {
  for (int64_t r = 0; r < filled(rows); r += 2) {
    uint32_t* row = out + r / 2 * pitch;
    const float *one = from + r * step, *two = one + step;
    if (r + 1 < rows)
      for (int64_t j = 0; j < columns; ++j) row[j] = rounded(one[j]) | rounded(two[j]) << 16;
    else if (r < rows)
      for (int64_t j = 0; j < columns; ++j) row[j] = rounded(one[j]);
    else
      std::fill_n(row, columns, 0);
    std::fill(row + columns, row + filled(columns), 0);
  }
}

inline void to_half(const float* from, Half* to, int64_t count) {
  for_pieces<Half>(count, [&](int64_t j, int64_t n) {
    const auto piece = Piece<float>::load(from + j, n);
    Piece<Half>{piece.low, piece.high}.store(to + j, n);
  });
}

// Rows of tokens with zeros after their features and after the last of them.
inline void stage(const Half* from, int64_t step, int64_t count, int64_t features, Half* out) {
  const int64_t pitch = filled(features);
  for (int64_t t = 0; t < filled(count); ++t) {
    const int64_t have = t < count ? features : 0;
    std::copy_n(from + t * step, have, out + t * pitch);
    std::fill(out + t * pitch + have, out + (t + 1) * pitch, Half(0));
  }
}

// Keys and values of every sequence and head, packed panel by panel; blocks of queries against them.
class TileForward {
 public:
  using Wide = float;
  using Weight = Half;
  const int64_t block_queries = 64, block_keys;

  TileForward(const Call& call, Operand<const Half> query, Operand<const Half> key, Operand<const Half> value)
      : block_keys(std::clamp<int64_t>(filled(call.longest(&Span::keys)), kTile, 512)),
        call_(call),
        query_(query),
        features_(filled(call.features)),
        value_features_(filled(call.value_features)),
        first_(panels(call, block_keys)),
        keys_(first_.back() * call.key_heads * (features_ / 2 * block_keys)),
        values_(first_.back() * call.key_heads * (block_keys / 2 * value_features_)) {
    at::parallel_for(0, first_.back() * call.key_heads, 1, [&](int64_t begin, int64_t end) {
      size_t span = 0;
      for (int64_t i = begin; i < end; ++i) {
        const int64_t panel = i / call.key_heads, head = i % call.key_heads;
        while (first_[span + 1] <= panel) ++span;
        const Span& at = call.spans[span];
        const int64_t token = (panel - first_[span]) * block_keys,
                      count = std::min(block_keys, at.keys - token);
        pack_turned(key.at(at.batch, at.key + token, head), key.token, count, call.features,
                    keys_.get() + i * (features_ / 2 * block_keys), block_keys);
        pack_pairs(value.at(at.batch, at.key + token, head), value.token, count, call.value_features,
                   values_.get() + i * (block_keys / 2 * value_features_), value_features_);
      }
    });
  }

  int64_t value_pitch() const { return value_features_; }

  class Block {
   public:
    explicit Block(const TileForward& of) : of_(of), staged_(of.block_queries * of.features_) {}
    ~Block() { at::native::cpublas::brgemm_release(true); }

    void begin(const Span& span, int64_t number, int64_t head, int64_t query, int64_t queries) {
      first_ = of_.first_[number];
      head_ = head / of_.call_.groups();
      queries_ = filled(queries);
      stage(of_.query_.at(span.batch, span.query + query, head), of_.query_.token, queries,
            of_.call_.features, staged_.get());
    }
    void scores(int64_t first, int64_t count, float* out) {
      multiply_tiles(queries_, filled(count), of_.features_, staged_.get(), of_.features_,
                     of_.keys_.get() + panel(first) * (of_.features_ / 2 * of_.block_keys), of_.block_keys,
                     false, out, of_.block_keys);
    }
    void add_values(Half* weights, int64_t first, int64_t count, float* out) {
      const int64_t all = filled(count);
      for (int64_t i = 0; i < queries_ && all > count; ++i)
        std::fill(weights + i * of_.block_keys + count, weights + i * of_.block_keys + all, Half(0));
      multiply_tiles(queries_, of_.value_features_, all, weights, of_.block_keys,
                     of_.values_.get() + panel(first) * (of_.block_keys / 2 * of_.value_features_),
                     of_.value_features_, true, out, of_.value_features_);
    }

   private:
    int64_t panel(int64_t first) const {
      return (first_ + first / of_.block_keys) * of_.call_.key_heads + head_;
    }

    const TileForward& of_;
    const Scratch<Half> staged_;
    int64_t first_ = 0, head_ = 0, queries_ = 0;
  };

 private:
  // Offsets of the panels of each sequence, and their number.
  static std::vector<int64_t> panels(const Call& call, int64_t keys) {
    std::vector<int64_t> first{0};
    for (const Span& span : call.spans) first.push_back(first.back() + (span.keys + keys - 1) / keys);
    return first;
  }

  const Call& call_;
  const Operand<const Half> query_;
  const int64_t features_, value_features_;
  const std::vector<int64_t> first_;
  const Scratch<uint32_t> keys_, values_;
};

// Blocks of the backward pass. The gradients of keys and values are summed transposed, so that the weights
// are an operand that needs no transposition but only pairing.
class TileBackward {
 public:
  using Wide = float;
  static constexpr int64_t kQueries = 64, kKeys = 128;

  const Call& call;
  Operand<const Half> query, key, value, grad;
  Operand<Half> grad_query, grad_key, grad_value;

  class Pair {
   public:
    explicit Pair(const TileBackward& of)
        : of_(of),
          features_(filled(of.call.features)),
          value_features_(filled(of.call.value_features)),
          queries_(filled(of.call.longest(&Span::queries))),
          panels_((of.call.longest(&Span::keys) + kKeys - 1) / kKeys),
          key_turned_(panels_ * features_ / 2 * kKeys),
          value_turned_(panels_ * value_features_ / 2 * kKeys),
          key_pairs_(panels_ * kKeys / 2 * features_),
          grad_key_(panels_ * features_ * kKeys),
          grad_value_(panels_ * value_features_ * kKeys),
          query_(queries_ * features_),
          grad_(queries_ * value_features_),
          query_turned_(queries_ * features_),
          grad_turned_(queries_ * value_features_),
          grad_query_(queries_ * features_),
          weights_(kQueries / 2 * kKeys),
          slopes_(kQueries / 2 * kKeys),
          slope_rows_(kQueries * kKeys) {}
    ~Pair() { at::native::cpublas::brgemm_release(true); }

    void begin(const Span& span, int64_t key_head) {
      span_ = span;
      key_head_ = key_head;
      for (int64_t j = 0; j < span.keys; j += kKeys) {
        const int64_t count = std::min(kKeys, span.keys - j);
        const Half* k = of_.key.at(span.batch, span.key + j, key_head);
        pack_turned(k, of_.key.token, count, of_.call.features, key_turned_.get() + j * features_ / 2, kKeys);
        pack_pairs(k, of_.key.token, count, of_.call.features, key_pairs_.get() + j * features_ / 2,
                   features_);
        pack_turned(of_.value.at(span.batch, span.key + j, key_head), of_.value.token, count,
                    of_.call.value_features, value_turned_.get() + j * value_features_ / 2, kKeys);
      }
      const int64_t panels = (span.keys + kKeys - 1) / kKeys;
      std::fill_n(grad_key_.get(), panels * features_ * kKeys, 0.0f);
      std::fill_n(grad_value_.get(), panels * value_features_ * kKeys, 0.0f);
    }

    void begin_head(int64_t head) {
      head_ = head;
      const int64_t all = filled(span_.queries);
      stage(of_.query.at(span_.batch, span_.query, head), of_.query.token, span_.queries, of_.call.features,
            query_.get());
      stage(of_.grad.at(span_.batch, span_.query, head), of_.grad.token, span_.queries,
            of_.call.value_features, grad_.get());
      turn(query_.get(), features_, all, query_turned_.get());
      turn(grad_.get(), value_features_, all, grad_turned_.get());
      std::fill_n(grad_query_.get(), all * features_, 0.0f);
    }

    void products(int64_t query, int64_t queries, int64_t key, int64_t keys, float* scores, float* weights) {
      const int64_t rows = filled(queries), columns = filled(keys);
      multiply_tiles(rows, columns, features_, query_.get() + query * features_, features_,
                     key_turned_.get() + key * features_ / 2, kKeys, false, scores, kKeys);
      multiply_tiles(rows, columns, value_features_, grad_.get() + query * value_features_, value_features_,
                     value_turned_.get() + key * value_features_ / 2, kKeys, false, weights, kKeys);
    }

    void add(int64_t query, int64_t queries, int64_t key, int64_t keys, const float* weights,
             const float* slopes) {
      const int64_t rows = filled(queries), columns = filled(keys), all = filled(span_.queries);
      pack_rows(weights, kKeys, queries, keys, weights_.get(), kKeys);
      pack_rows(slopes, kKeys, queries, keys, slopes_.get(), kKeys);
      for (int64_t i = 0; i < rows; ++i) {
        Half* row = slope_rows_.get() + i * kKeys;
        const int64_t have = i < queries ? keys : 0;
        to_half(slopes + i * kKeys, row, have);
        std::fill(row + have, row + columns, Half(0));
      }
      multiply_tiles(value_features_, columns, rows, grad_turned_.get() + query, all, weights_.get(), kKeys,
                     true, grad_value_.get() + key * value_features_, kKeys);
      multiply_tiles(features_, columns, rows, query_turned_.get() + query, all, slopes_.get(), kKeys, true,
                     grad_key_.get() + key * features_, kKeys);
      multiply_tiles(rows, features_, columns, slope_rows_.get(), kKeys,
                     key_pairs_.get() + key * features_ / 2, features_, true,
                     grad_query_.get() + query * features_, features_);
    }

    void end_head() {
      for (int64_t i = 0; i < span_.queries; ++i)
        to_half(grad_query_.get() + i * features_, of_.grad_query.at(span_.batch, span_.query + i, head_),
                of_.call.features);
    }

    void end() {
      const Scratch<float> turned(kKeys * std::max(features_, value_features_));
      for (int64_t j = 0; j < span_.keys; j += kKeys) {
        finish(of_.grad_key, grad_key_.get() + j * features_, features_, of_.call.features, j, turned.get());
        finish(of_.grad_value, grad_value_.get() + j * value_features_, value_features_,
               of_.call.value_features, j, turned.get());
      }
    }

   private:
    // [tokens, features] to [features, tokens], both multiples of kTile.
    static void turn(const Half* from, int64_t features, int64_t tokens, Half* out) {
      for (int64_t t = 0; t < tokens; t += kTile)
        for (int64_t d = 0; d < features; d += kTile)
          at::vec::transpose_mxn<Half>(from + t * features + d, features, out + d * tokens + t, tokens, kTile,
                                       kTile);
    }

    void finish(const Operand<Half>& to, const float* panel, int64_t pitch, int64_t features, int64_t key,
                float* turned) const {
      const int64_t count = std::min(kKeys, span_.keys - key);
      at::vec::transpose_mxn<float>(panel, kKeys, turned, pitch, static_cast<int>(pitch),
                                    static_cast<int>(count));
      for (int64_t i = 0; i < count; ++i)
        to_half(turned + i * pitch, to.at(span_.batch, span_.key + key + i, key_head_), features);
    }

    const TileBackward& of_;
    const int64_t features_, value_features_, queries_, panels_;
    const Scratch<uint32_t> key_turned_, value_turned_, key_pairs_;
    const Scratch<float> grad_key_, grad_value_;
    const Scratch<Half> query_, grad_, query_turned_, grad_turned_;
    const Scratch<float> grad_query_;
    const Scratch<uint32_t> weights_, slopes_;
    const Scratch<Half> slope_rows_;
    Span span_{};
    int64_t key_head_ = 0, head_ = 0;
  };
};

}  // namespace isthmus::kernels::attention
