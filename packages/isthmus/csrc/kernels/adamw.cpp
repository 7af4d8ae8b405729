// Adam and AdamW over all parameters, and the norm of all gradients: one parallel region over the elements of
// every tensor together. The norm reads the gradients once; the update clips, unscales and applies them in
// one more pass.
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/pieces.h"

namespace isthmus::kernels {
namespace {

using at::ScalarType;
using at::Tensor;
using at::TensorList;
using OptionalTensor = std::optional<Tensor>;

constexpr int64_t kBlock = 16384;  // elements

// Factors of the update; the bias corrections of the step are folded into two of them.
struct Factors {
  double grad, decay, l2, mean, keep_square, square, eps, step;
};

// One parameter with its state, each as n elements in one piece of memory.
struct Item {
  void* param;
  const void* grad;
  void *mean, *square, *top, *master;
  int64_t n;
  Factors factors;
  void (*update)(const Item&, int64_t begin, int64_t end);
};

template <typename P, typename G, typename S>
void update(const Item& item, int64_t begin, int64_t end) {
  using W = Wide<P>;
  using V = Vectorized<W>;
  auto* param = static_cast<P*>(item.param) + begin;
  const auto* grad = static_cast<const G*>(item.grad) + begin;
  auto *mean = static_cast<S*>(item.mean) + begin, *square = static_cast<S*>(item.square) + begin;
  auto* top = item.top == nullptr ? nullptr : static_cast<S*>(item.top) + begin;
  auto* master = item.master == nullptr ? nullptr : static_cast<W*>(item.master) + begin;
  const auto wide = [](double value) { return V(static_cast<W>(value)); };
  const Factors& f = item.factors;
  const V scale = wide(f.grad), decay = wide(f.decay), l2 = wide(f.l2), slope = wide(f.mean);
  const V keep = wide(f.keep_square), part = wide(f.square), eps = wide(f.eps), step = wide(f.step);
  const auto step_half = [&](V p, V g, V& m, V& s, V& t) {
    g = g * scale;
    if (f.l2 != 0) g = at::vec::fmadd(l2, p, g);  // a NaN parameter does not affect the state of AdamW
    m = at::vec::fmadd(slope, g - m, m);
    s = at::vec::fmadd(s, keep, g * g * part);
    t = at::vec::maximum(t, s);
    return p * decay - step * m / ((top == nullptr ? s : t).sqrt() + eps);
  };
  for_pieces<P>(end - begin, [&](int64_t i, int64_t count) {
    const auto p = master == nullptr ? Piece<P>::load(param + i, count)
                                     : Piece<P>{Piece<W>::load(master + i, count).low,
                                                Piece<W>::load(master + i, count).high};
    const auto g = Piece<G>::load(grad + i, count);
    auto m = Piece<S>::load(mean + i, count), s = Piece<S>::load(square + i, count);
    auto t = top == nullptr ? s : Piece<S>::load(top + i, count);
    const Piece<P> out{step_half(p.low, g.low, m.low, s.low, t.low),
                       step_half(p.high, g.high, m.high, s.high, t.high)};
    out.store(param + i, count);
    if (master != nullptr) Piece<W>{out.low, out.high}.store(master + i, count);
    m.store(mean + i, count);
    s.store(square + i, count);
    if (top != nullptr) t.store(top + i, count);
  });
}

template <typename P, typename G>
auto update_for_state(ScalarType state) -> void (*)(const Item&, int64_t, int64_t) {
  if (state == c10::CppTypeToScalarType<P>::value && std::is_same_v<P, G>) return update<P, G, P>;
  if constexpr (!std::is_same_v<P, double>)
    if (state == at::kFloat) return update<P, G, float>;
  return nullptr;
}

// The update for these dtypes, or null: parameter and gradient alike or one of them float32, the state like
// the parameter or float32.
auto choose_update(ScalarType param, ScalarType grad, ScalarType state)
    -> void (*)(const Item&, int64_t, int64_t) {
  if (param == at::kDouble) return grad == at::kDouble ? update_for_state<double, double>(state) : nullptr;
  if (param == at::kFloat) {
    if (grad == at::kFloat) return update_for_state<float, float>(state);
    if (grad == at::kBFloat16) return update_for_state<float, at::BFloat16>(state);
    return grad == at::kHalf ? update_for_state<float, at::Half>(state) : nullptr;
  }
  if (param == at::kBFloat16) {
    if (grad == at::kFloat) return update_for_state<at::BFloat16, float>(state);
    return grad == at::kBFloat16 ? update_for_state<at::BFloat16, at::BFloat16>(state) : nullptr;
  }
  if (grad == at::kFloat) return update_for_state<at::Half, float>(state);
  return grad == at::kHalf ? update_for_state<at::Half, at::Half>(state) : nullptr;
}

// Offset of the elements of each tensor when all are laid end to end.
template <typename Sizes>
std::vector<int64_t> starts_of(int64_t count, const Sizes& size) {
  std::vector<int64_t> starts(count + 1, 0);
  for (int64_t i = 0; i < count; ++i) starts[i + 1] = starts[i] + size(i);
  return starts;
}

// Last blocks first: the norm went forward, so that the end of the gradients is what the cache still has.
void update_all(const std::vector<Item>& items) {
  const int64_t count = static_cast<int64_t>(items.size());
  const auto starts = starts_of(count, [&](int64_t i) { return items[i].n; });
  at::parallel_for(0, starts.back(), kBlock, [&](int64_t begin, int64_t end) {
    int64_t i = std::upper_bound(starts.begin(), starts.end(), end - 1) - starts.begin() - 1;
    for (int64_t top = end; top > begin; --i)
      for (; top > std::max(begin, starts[i]); top = std::max({begin, starts[i], top - kBlock})) {
        const int64_t bottom = std::max({begin, starts[i], top - kBlock});
        items[i].update(items[i], bottom - starts[i], top - starts[i]);
      }
  });
}

// The tensors of one parameter in one memory layout. Those of another layout are worked on as copies.
class Layout {
 public:
  explicit Layout(const Tensor& param) : param_(param), dense_(param.is_non_overlapping_and_dense()) {}

  const void* read(const Tensor& given) { return kept_.emplace_back(in_layout(given)).const_data_ptr(); }

  void* write(const Tensor& given, ScalarType dtype) {
    TORCH_CHECK_TYPE(given.scalar_type() == dtype, "adamw_: a state is ", given.scalar_type(), " where ",
                     dtype, " is expected");
    const Tensor used = kept_.emplace_back(in_layout(given));
    if (!used.is_same(given)) copies_.emplace_back(given, used);
    return used.mutable_data_ptr();
  }

  void copy_back() const {
    for (const auto& [given, used] : copies_) given.copy_(used);
  }

 private:
  Tensor in_layout(const Tensor& given) const {
    TORCH_CHECK_VALUE(given.sizes() == param_.sizes(), "adamw_: a gradient or state has shape ",
                      given.sizes(), " and its parameter ", param_.sizes(), "; they must be the same");
    if (!dense_) return given.contiguous();
    if (given.strides() == param_.strides()) return given;
    return at::empty_like(param_, given.options()).copy_(given);
  }

  const Tensor& param_;
  bool dense_;
  std::vector<Tensor> kept_;
  std::vector<std::pair<Tensor, Tensor>> copies_;
};

double value_of(const OptionalTensor& tensor, double otherwise) {
  return tensor.has_value() ? tensor->item<double>() : otherwise;
}

void adamw_(TensorList params, TensorList grads, TensorList exp_avgs, TensorList exp_avg_sqs,
            TensorList max_exp_avg_sqs, TensorList masters, TensorList steps, const OptionalTensor& norm,
            const OptionalTensor& grad_scale, const OptionalTensor& found_inf, double lr, double beta1,
            double beta2, double eps, double weight_decay, double max_norm, bool decoupled, bool maximize) {
  if (value_of(found_inf, 0) != 0) return;
  const double total = value_of(norm, 0);
  // Not std::min, which would take a NaN for 1.
  const double clip = norm.has_value() && !(max_norm / (total + 1e-6) >= 1) ? max_norm / (total + 1e-6) : 1;
  const double scale = (maximize ? -clip : clip) / value_of(grad_scale, 1);
  std::vector<Layout> layouts;
  std::vector<Item> items;
  layouts.reserve(params.size());
  items.reserve(params.size());
  for (size_t i = 0; i < params.size(); ++i) {
    const double step = steps[i].item<double>() + 1;
    const double root = std::sqrt(1 - std::pow(beta2, step));
    steps[i].fill_(step);
    const ScalarType param = params[i].scalar_type(), state = exp_avgs[i].scalar_type();
    Layout& layout = layouts.emplace_back(params[i]);
    items.push_back(
        {layout.write(params[i], param), layout.read(grads[i]), layout.write(exp_avgs[i], state),
         layout.write(exp_avg_sqs[i], state),
         max_exp_avg_sqs.empty() ? nullptr : layout.write(max_exp_avg_sqs[i], state),
         masters.empty() ? nullptr : layout.write(masters[i], at::toOpMathType(param)), params[i].numel(),
         Factors{scale, decoupled ? 1 - lr * weight_decay : 1, decoupled ? 0 : weight_decay, 1 - beta1, beta2,
                 1 - beta2, eps * root, lr / (1 - std::pow(beta1, step)) * root},
         choose_update(param, grads[i].scalar_type(), state)});
    TORCH_CHECK_TYPE(items.back().update != nullptr, "adamw_: no kernel for a parameter of ",
                     params[i].scalar_type(), " with a gradient of ", grads[i].scalar_type(),
                     " and a state of ", exp_avgs[i].scalar_type());
  }
  update_all(items);
  for (const Layout& layout : layouts) layout.copy_back();
}

enum class Order { kOne, kTwo, kMax };

// Sum of absolute values or of squares, or the largest absolute value, of a block.
template <typename T, Order order>
double block_norm(const T* values, int64_t n) {
  using V = Vectorized<Wide<T>>;
  constexpr int64_t kSize = Piece<T>::kSize;
  const auto accumulate = [](V x, V sum) {
    if constexpr (order == Order::kTwo) return at::vec::fmadd(x, x, sum);
    if constexpr (order == Order::kOne) return sum + x.abs();
    return at::vec::maximum(sum, x.abs());
  };
  const auto combine = [](V x, V y) { return order == Order::kMax ? at::vec::maximum(x, y) : x + y; };
  Piece<T> sums[4] = {{V(0), V(0)}, {V(0), V(0)}, {V(0), V(0)}, {V(0), V(0)}};
  const auto add = [&](Piece<T>& sum, const Piece<T>& x) {
    sum = {accumulate(x.low, sum.low), accumulate(x.high, sum.high)};
  };
  int64_t i = 0;
  for (; i + 4 * kSize <= n; i += 4 * kSize)
    for (int64_t j = 0; j < 4; ++j) add(sums[j], Piece<T>::load(values + i + j * kSize));
  for_pieces<T>(n - i,
                [&](int64_t j, int64_t count) { add(sums[0], Piece<T>::load(values + i + j, count)); });
  V all(0);
  for (const auto& sum : sums) all = combine(all, combine(sum.low, sum.high));
  if constexpr (order == Order::kMax)
    return at::vec::vec_reduce_all([](V& x, V& y) { return at::vec::maximum(x, y); }, all);
  return sum_of<V>(all);
}

template <Order order>
double block_norm(const Tensor& tensor, int64_t begin, int64_t end) {
  const auto of = [&](auto kind) {
    using T = decltype(kind);
    return block_norm<T, order>(tensor.const_data_ptr<T>() + begin, end - begin);
  };
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return of(float());
    case at::kDouble:
      return of(double());
    case at::kBFloat16:
      return of(at::BFloat16());
    case at::kHalf:
      return of(at::Half());
    default:
      TORCH_CHECK_TYPE(false, "grad_norm: no kernel for ", tensor.scalar_type());
  }
}

// The sum of a norm's terms, or the largest of them.
struct NormSum {
  Order order;
  double value = 0;

  void add(double other) {
    if (order != Order::kMax)
      value += other;
    else if (std::isnan(other) || other > value)
      value = other;  // a NaN stays: nothing is larger
  }
  double norm() const { return order == Order::kTwo ? std::sqrt(value) : value; }
};

std::tuple<Tensor, Tensor> grad_norm(TensorList grads, double norm_type) {
  const Order order = norm_type == 2 ? Order::kTwo : norm_type == 1 ? Order::kOne : Order::kMax;
  const int64_t count = static_cast<int64_t>(grads.size());
  std::vector<Tensor> flat;
  bool wide = false;
  for (const Tensor& grad : grads) {
    flat.push_back(grad.is_non_overlapping_and_dense() ? grad : grad.contiguous());
    wide = wide || grad.scalar_type() == at::kDouble;
  }
  const auto blocks = [&](int64_t i) { return (flat[i].numel() + kBlock - 1) / kBlock; };
  const auto starts = starts_of(count, blocks);
  // One number for each block, whatever the number of threads, so that the norm does not depend on it.
  std::vector<double> found(starts.back());
  at::parallel_for(0, starts.back(), 1, [&](int64_t begin, int64_t end) {
    int64_t i = std::upper_bound(starts.begin(), starts.end(), begin) - starts.begin() - 1;
    for (int64_t block = begin; block < end; ++block) {
      while (block >= starts[i + 1]) ++i;
      const int64_t from = (block - starts[i]) * kBlock, to = std::min(from + kBlock, flat[i].numel());
      found[block] = order == Order::kTwo   ? block_norm<Order::kTwo>(flat[i], from, to)
                     : order == Order::kOne ? block_norm<Order::kOne>(flat[i], from, to)
                                            : block_norm<Order::kMax>(flat[i], from, to);
    }
  });
  const auto options = at::TensorOptions().dtype(wide ? at::kDouble : at::kFloat);
  Tensor total = at::empty({}, options), each = at::empty({count}, options);
  NormSum all{order};
  for (int64_t i = 0; i < count; ++i) {
    NormSum one{order};
    for (int64_t block = starts[i]; block < starts[i + 1]; ++block) one.add(found[block]);
    all.add(one.value);
    each[i].fill_(one.norm());
  }
  total.fill_(all.norm());
  return {total, each};
}

TORCH_LIBRARY_FRAGMENT(isthmus_cpu, m) {
  m.def(
      "adamw_(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] exp_avgs, Tensor(c!)[] exp_avg_sqs, "
      "Tensor(d!)[] max_exp_avg_sqs, Tensor(e!)[] masters, Tensor(f!)[] steps, Tensor? norm, Tensor? "
      "grad_scale, "
      "Tensor? found_inf, float lr, float beta1, float beta2, float eps, float weight_decay, float max_norm, "
      "bool decoupled, bool maximize) -> ()",
      torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(adamw_)));
  m.def("grad_norm", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(grad_norm)));
}

}  // namespace
}  // namespace isthmus::kernels
