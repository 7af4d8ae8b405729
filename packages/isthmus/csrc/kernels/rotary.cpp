// Rotary position embedding: pairs of elements of each head, turned by the angle of the token's position.
// Heads are read and written where they lie, whatever the order of sequence and heads in memory.
#include <ATen/Dispatch.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <tuple>

#include "kernels/pieces.h"

namespace isthmus::kernels {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

struct Settings {
  int64_t seq_dim, dim;  // dim: how many elements of a head are turned, the first ones
  bool interleaved, conjugate;
};

// Cosines and sines, [batch or 1, rows, dim / 2 or dim], and the row of each token.
struct Tables {
  Tensor cos, sin, positions;
  bool whole;  // dim wide: both elements of a pair have separate entries

  Tables(const Tensor& cos, const Tensor& sin, const OptionalTensor& positions, const Tensor& input,
         int64_t dim)
      : cos(prepare_table(cos, sin, input)), sin(prepare_table(sin, cos, input)), whole(cos.size(-1) == dim) {
    if (positions.has_value()) this->positions = positions->to(at::kLong).contiguous();
  }

  // The table as three dimensions, of the input's dtype or the one that is computed in.
  static Tensor prepare_table(const Tensor& table, const Tensor& other, const Tensor& input) {
    const auto kind = table.scalar_type();
    const bool fits = kind == other.scalar_type() && kind == input.scalar_type();
    const Tensor typed = fits ? table : table.to(at::toOpMathType(input.scalar_type()));
    return (typed.dim() == 2 ? typed.unsqueeze(0) : typed).contiguous();
  }

  void check(const Tensor& input, const Settings& settings) const {
    const int64_t tokens = input.size(settings.seq_dim), batch = input.size(0);
    TORCH_CHECK_VALUE(cos.sizes() == sin.sizes(), "rotary: cos has shape ", cos.sizes(), " and sin ",
                      sin.sizes());
    TORCH_CHECK_VALUE(
        settings.dim % 2 == 0 && settings.dim <= input.size(3) && (whole || cos.size(2) * 2 == settings.dim),
        "rotary: tables of width ", cos.size(2), " do not rotate ", settings.dim, " of ", input.size(3));
    TORCH_CHECK_VALUE(cos.size(0) == 1 || (cos.size(0) == batch && !positions.defined()),
                      "rotary: tables of ", cos.size(0), " sequences for ", batch);
    if (!positions.defined()) {
      TORCH_CHECK_VALUE(cos.size(1) >= tokens, "rotary: tables of ", cos.size(1), " rows for ", tokens,
                        " tokens");
      return;
    }
    TORCH_CHECK_VALUE(positions.dim() == 2 && positions.size(1) == tokens &&
                          (positions.size(0) == batch || positions.size(0) == 1),
                      "rotary: positions have shape ", positions.sizes(), " for ", batch, " sequences of ",
                      tokens);
  }

  // Elements from the first of a table to the row of a token.
  int64_t offset(int64_t sequence, int64_t token) const {
    const int64_t rows = cos.size(1), width = cos.size(2);
    if (!positions.defined()) return ((cos.size(0) == 1 ? 0 : sequence * rows) + token) * width;
    const int64_t line = positions.size(0) == 1 ? 0 : sequence * positions.size(1);
    const int64_t row = positions.const_data_ptr<int64_t>()[line + token];
    TORCH_CHECK_INDEX(row >= 0 && row < rows, "rotary: position ", row, " is outside the ", rows,
                      " rows of the tables");
    return row * width;
  }
};

// Two pieces of alternating elements as the even and the odd ones, and back.
template <typename T>
std::pair<Piece<T>, Piece<T>> load_pairs(const T* from, int64_t pairs) {
  constexpr int64_t kSize = Piece<T>::kSize;
  const int64_t first = std::min(2 * pairs, kSize), second = 2 * pairs - first;
  const auto a = Piece<T>::load(from, first);
  const auto b = second > 0 ? Piece<T>::load(from + kSize, second) : a;
  const auto [low_even, low_odd] = at::vec::deinterleave2(a.low, a.high);
  const auto [high_even, high_odd] = at::vec::deinterleave2(b.low, b.high);
  return {{low_even, high_even}, {low_odd, high_odd}};
}

template <typename T>
void store_pairs(const Piece<T>& even, const Piece<T>& odd, T* to, int64_t pairs) {
  constexpr int64_t kSize = Piece<T>::kSize;
  const int64_t first = std::min(2 * pairs, kSize), second = 2 * pairs - first;
  const auto [a_low, a_high] = at::vec::interleave2(even.low, odd.low);
  Piece<T>{a_low, a_high}.store(to, first);
  if (second == 0) return;
  const auto [b_low, b_high] = at::vec::interleave2(even.high, odd.high);
  Piece<T>{b_low, b_high}.store(to + kSize, second);
}

// The two entries of each pair in a row of a table: [half] for both, else [2, half] or [half, 2].
template <typename T, bool kInterleaved>
std::pair<Piece<T>, Piece<T>> load_table(const T* row, int64_t i, int64_t half, bool whole, int64_t count) {
  if (!whole) {
    const auto both = Piece<T>::load(row + i, count);
    return {both, both};
  }
  if constexpr (kInterleaved) return load_pairs<T>(row + 2 * i, count);
  return {Piece<T>::load(row + i, count), Piece<T>::load(row + half + i, count)};
}

// a, b = a * c1 - b * s1, b * c2 + a * s2; its conjugate, which is its transpose: a * c1 + b * s2, b * c2 - a
// * s1.
template <typename T, typename C, bool kInterleaved>
void rotate_head(const T* from, T* to, const C* cos, const C* sin, int64_t half, bool whole, bool conjugate) {
  using V = typename Piece<T>::Vector;
  const V sign(conjugate ? -1 : 1);
  for_pieces<T>(half, [&](int64_t i, int64_t count) {
    const auto [c1, c2] = load_table<C, kInterleaved>(cos, i, half, whole, count);
    const auto [sin1, sin2] = load_table<C, kInterleaved>(sin, i, half, whole, count);
    const auto &s1 = conjugate ? sin2 : sin1, &s2 = conjugate ? sin1 : sin2;
    const auto [a, b] =
        kInterleaved ? load_pairs<T>(from + 2 * i, count)
                     : std::pair{Piece<T>::load(from + i, count), Piece<T>::load(from + half + i, count)};
    const Piece<T> first{a.low * c1.low - b.low * (s1.low * sign),
                         a.high * c1.high - b.high * (s1.high * sign)};
    const Piece<T> second{b.low * c2.low + a.low * (s2.low * sign),
                          b.high * c2.high + a.high * (s2.high * sign)};
    if constexpr (kInterleaved) {
      store_pairs<T>(first, second, to + 2 * i, count);
    } else {
      first.store(to + i, count);
      second.store(to + half + i, count);
    }
  });
}

template <typename T, typename C, bool kInterleaved>
void rotate_heads(const Tensor& input, const Tensor& out, const Tables& tables, const Settings& settings,
                  int64_t heads) {
  const int64_t head_dim = 3 - settings.seq_dim, size = input.size(3), dim = settings.dim;
  // The dimension with the larger stride outside, so that memory is walked through in order.
  const bool heads_inside = input.stride(settings.seq_dim) >= input.stride(head_dim);
  const int64_t outer_dim = heads_inside ? settings.seq_dim : head_dim, inner_dim = 3 - outer_dim;
  const int64_t outer = input.size(outer_dim), inner = input.size(inner_dim);
  const T* x = input.const_data_ptr<T>();
  T* y = out.mutable_data_ptr<T>();
  const C *cos = tables.cos.const_data_ptr<C>(), *sin = tables.sin.const_data_ptr<C>();
  at::parallel_for(0, input.size(0) * outer, rows_per_task(inner * size), [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t sequence = unit / outer, o = unit % outer;
      for (int64_t i = 0; i < inner; ++i) {
        const T* from =
            x + sequence * input.stride(0) + o * input.stride(outer_dim) + i * input.stride(inner_dim);
        T* to = y + sequence * out.stride(0) + o * out.stride(outer_dim) + i * out.stride(inner_dim);
        const bool turned = (heads_inside ? i : o) < heads;
        if (turned) {
          const int64_t at = tables.offset(sequence, heads_inside ? o : i);
          rotate_head<T, C, kInterleaved>(from, to, cos + at, sin + at, dim / 2, tables.whole,
                                          settings.conjugate);
        }
        const int64_t done = turned ? dim : 0;
        if (to != from) std::copy_n(from + done, size - done, to + done);
      }
    }
  });
}

void rotate(const Tensor& input, const Tensor& out, const Tables& tables, const Settings& settings,
            int64_t heads) {
  tables.check(input, settings);
  if (input.numel() == 0) return;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, input.scalar_type(), "rotary", [&] {
    const auto with = [&](auto table) {
      using C = decltype(table);
      settings.interleaved ? rotate_heads<scalar_t, C, true>(input, out, tables, settings, heads)
                           : rotate_heads<scalar_t, C, false>(input, out, tables, settings, heads);
    };
    tables.cos.scalar_type() == input.scalar_type() ? with(scalar_t()) : with(Wide<scalar_t>());
  });
}

Tensor dense_heads(const Tensor& given) {
  TORCH_CHECK_VALUE(given.dim() == 4, "rotary: the input has ", given.dim(), " dimensions; it needs 4");
  return given.stride(3) == 1 ? given : given.contiguous();
}

Tensor rotate_tensor(const Tensor& given, const Tables& tables, const Settings& settings, int64_t heads) {
  const Tensor input = dense_heads(given), out = at::empty(input.sizes(), input.options());
  rotate(input, out, tables, settings, heads < 0 ? INT64_MAX : heads);
  return out;
}

void rotate_(const Tensor& given, const Tables& tables, const Settings& settings, int64_t heads) {
  TORCH_CHECK_VALUE(at::has_internal_overlap(given) != at::MemOverlap::Yes,
                    "rotary_: elements of the tensor share memory; clone() it");
  const Tensor input = dense_heads(given);
  rotate(input, input, tables, settings, heads < 0 ? INT64_MAX : heads);
  if (!input.is_same(given)) given.copy_(input);
}

std::tuple<Tensor, Tensor> rotary(const Tensor& query, const OptionalTensor& key, const Tensor& cos,
                                  const Tensor& sin, const OptionalTensor& positions, int64_t seq_dim,
                                  int64_t dim, int64_t heads, bool interleaved, bool conjugate) {
  const Settings settings{seq_dim, dim, interleaved, conjugate};
  const Tables tables(cos, sin, positions, query, dim);
  return {rotate_tensor(query, tables, settings, heads),
          key.has_value() ? rotate_tensor(*key, tables, settings, -1) : Tensor()};
}

void rotary_(const Tensor& query, const OptionalTensor& key, const Tensor& cos, const Tensor& sin,
             const OptionalTensor& positions, int64_t seq_dim, int64_t dim, int64_t heads, bool interleaved,
             bool conjugate) {
  const Settings settings{seq_dim, dim, interleaved, conjugate};
  const Tables tables(cos, sin, positions, query, dim);
  rotate_(query, tables, settings, heads);
  if (key.has_value()) rotate_(*key, tables, settings, -1);
}

TORCH_LIBRARY_FRAGMENT(isthmus_cpu, m) {
  m.def("rotary", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(rotary)));
  m.def(
      "rotary_(Tensor(a!) query, Tensor(b!)? key, Tensor cos, Tensor sin, Tensor? positions, int seq_dim, "
      "int dim, int heads, bool interleaved, bool conjugate) -> ()",
      torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(rotary_)));
}

}  // namespace
}  // namespace isthmus::kernels
