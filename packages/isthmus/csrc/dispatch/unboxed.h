// Entries of the hottest overloads, which are called without a stack where the delegate route serves them.
//
// They do what CpuRoute::call() does, for one signature at compile time; any other route, and a call from a
// stack, is taken by the overload that each of them is. Which overloads have one: unboxed.cpp.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "core/capture.h"
#include "dispatch/kernel_arguments.h"
#include "dispatch/routes.h"

namespace isthmus {

// The overload, and the kernel to register, which owns it.
struct Entry {
  Overload* overload;
  c10::KernelFunction kernel;
};
Entry make_entry(const c10::OperatorHandle& op, Overload::Routes routes);

// Names of the overloads that are called without a stack.
std::vector<std::string> unboxed_overloads();

namespace unboxed {

// Type that the CPU kernel gets in the place of an argument.
template <class A>
struct Carried {
  Carried(const A& value, Mapping&) : value(value) {}
  const A& get() { return value; }
  const A& value;
};

template <>
struct Carried<const at::Tensor&> {
  Carried(const at::Tensor& tensor, Mapping& mapping) : value(mapping.argument(tensor)) {}
  const at::Tensor& get() { return value; }
  const at::Tensor& value;
};

template <>
struct Carried<at::Tensor&> {
  // The mapping's tensors are its own, except those that it refuses here.
  Carried(at::Tensor& tensor, Mapping& mapping)
      : value(const_cast<at::Tensor&>(mapping.argument(tensor, /*written=*/true))) {}
  at::Tensor& get() { return value; }
  at::Tensor& value;
};

template <>
struct Carried<const std::optional<at::Tensor>&> {
  Carried(const std::optional<at::Tensor>& tensor, Mapping& mapping) {
    if (tensor) value = mapping.argument(*tensor);
  }
  const std::optional<at::Tensor>& get() { return value; }
  std::optional<at::Tensor> value;
};

template <class List>
struct CarriedList {
  CarriedList(const List& tensors, Mapping& mapping) {
    for (const at::Tensor& tensor : tensors) values.push_back(mapping.argument(tensor));
  }
  List get() { return List(at::TensorList(values)); }
  c10::SmallVector<at::Tensor, 4> values;
};
template <>
struct Carried<at::TensorList> : CarriedList<at::TensorList> {
  using CarriedList::CarriedList;
};
template <>
struct Carried<const at::ITensorListRef&> : CarriedList<at::ITensorListRef> {
  using CarriedList::CarriedList;
};

inline uint64_t dtype_bit_of(const at::Tensor& tensor) {
  return tensor.defined() ? dtype_bit(tensor.scalar_type()) : 0;
}
inline uint64_t dtype_bit_of(std::optional<at::ScalarType> dtype) { return dtype ? dtype_bit(*dtype) : 0; }
template <class A>
uint64_t dtype_bit_of(const A&) {
  return 0;
}

template <class A>
constexpr bool is_written = std::is_same_v<A, at::Tensor&>;

inline void note_written(const std::optional<at::Tensor>& tensor, Mapping& mapping) {
  if (tensor) mapping.argument(*tensor, /*written=*/true);
}

inline at::Tensor deliver(at::Tensor result, Mapping& mapping) { return mapping.result(std::move(result)); }

template <class... T>
std::tuple<T...> deliver(std::tuple<T...> results, Mapping& mapping) {
  return std::apply([&](T&... each) { return std::tuple<T...>{deliver(std::move(each), mapping)...}; },
                    results);
}

// The one tensor that an in-place or out= operator writes and returns.
template <class First, class... Rest>
at::Tensor& written_of(First&& first, Rest&&... rest) {
  if constexpr (is_written<First>)
    return first;
  else
    return written_of(std::forward<Rest>(rest)...);
}

}  // namespace unboxed

// kWritten: positions of optional tensors that the operator writes, though its schema does not say so.
template <class Signature, size_t... kWritten>
class UnboxedOverload;

template <class R, class... A, size_t... kWritten>
class UnboxedOverload<R(A...), kWritten...> final : public Overload {
 public:
  UnboxedOverload(const c10::OperatorHandle& op, Routes routes)
      : Overload(op, std::move(routes)),
        op_(op.typed<R(A...)>()),
        boxed_(c10::BoxedKernel::makeFromFunctor(std::make_unique<Boxed>(*this))) {
    std::vector<bool> expected{unboxed::is_written<A>...};
    ((expected[kWritten] = true), ...);
    TORCH_INTERNAL_ASSERT(written() == expected, name());
  }

  R operator()(A... arguments) {
    const uint64_t widened = widened_dtypes();
    if (C10_UNLIKELY(!is_delegated() || capturing() ||
                     (widened != 0 && (widened & (unboxed::dtype_bit_of(arguments) | ...)) != 0)))
      return c10::impl::BoxedKernelWrapper<R(A...)>::call(
          boxed_, op_, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), std::forward<A>(arguments)...);
    count(Route::kDelegate);
    prepare_delegate();
    keep_backward_in_thread();
    Mapping mapping(Mapping::Kind::kAlias, name());
    std::tuple<unboxed::Carried<A>...> carried{unboxed::Carried<A>(arguments, mapping)...};
    constexpr bool writes = (unboxed::is_written<A> || ...);
    if constexpr (writes) {
      static_assert(std::is_same_v<R, at::Tensor&>);
      call_cpu(carried, mapping);
      mapping.finish_arguments();
      return unboxed::written_of<A...>(arguments...);
    } else if constexpr (sizeof...(kWritten) > 0) {
      const auto all = std::forward_as_tuple(arguments...);
      (unboxed::note_written(std::get<kWritten>(all), mapping), ...);
      R results = call_cpu(carried, mapping);
      mapping.finish_arguments();
      return unboxed::deliver(std::move(results), mapping);
    } else {
      return unboxed::deliver(call_cpu(carried, mapping), mapping);
    }
  }

 private:
  // Calls of other routes go through a stack.
  struct Boxed final : c10::OperatorKernel {
    explicit Boxed(Overload& overload) : overload(overload) {}
    void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
      overload(op, keys, stack);
    }
    Overload& overload;
  };

  R call_cpu(std::tuple<unboxed::Carried<A>...>& carried, const Mapping& mapping) {
    const DelegateCall call(name(), mapping);
    return std::apply(
        [this](unboxed::Carried<A>&... each) -> R {
          return op_.redispatch(c10::DispatchKeySet(c10::DispatchKey::CPU), each.get()...);
        },
        carried);
  }

  const c10::TypedOperatorHandle<R(A...)> op_;
  const c10::BoxedKernel boxed_;
};

}  // namespace isthmus

// A call from a stack is the overload's.
template <class Signature, size_t... kWritten, bool kAllowDeprecated>
struct c10::impl::make_boxed_from_unboxed_functor<isthmus::UnboxedOverload<Signature, kWritten...>,
                                                  kAllowDeprecated> {
  static void call(OperatorKernel* kernel, const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
    (*static_cast<isthmus::Overload*>(kernel))(op, keys, stack);
  }
};
