// Random numbers by Philox (ISTHMUS_HOST_RNG=philox), in place of the CPU's kernels.
#define AT_PER_OPERATOR_HEADERS  // DistributionTemplates.h then includes the few operators that it calls
#include <ATen/native/DistributionTemplates.h>
#include <ATen/native/TensorFactories.h>
#include <torch/library.h>

#include <utility>

#include "dispatch/operators/random_kernels.h"
#include "dispatch/operators/register.h"
#include "dispatch/registration.h"
#include "dispatch/route_table.h"
#include "dispatch/statistics.h"
#include "isthmus_options.h"

namespace isthmus {
namespace {

using namespace random;

// Unlike ISTHMUS_COUNT, this makes the counter at the first call: elsewhere other routes serve these
// operators.
template <Literal kName>
void count() {
  static OperatorCalls& calls = operator_calls(std::string("aten::") + kName.text, Route::kNative);
  calls.count();
}

// ---- operators

namespace templates = at::native::templates;

at::Tensor& uniform_(at::Tensor& self, double from, double to, GeneratorArgument generator) {
  count<"uniform_">();
  return templates::uniform_impl_<Uniform, void>(self, from, to, std::move(generator));
}
at::Tensor& normal_(at::Tensor& self, double mean, double std, GeneratorArgument generator) {
  count<"normal_">();
  return templates::normal_impl_<Normal, void>(self, mean, std, std::move(generator));
}
at::Tensor& log_normal_(at::Tensor& self, double mean, double std, GeneratorArgument generator) {
  count<"log_normal_">();
  return templates::log_normal_impl_<LogNormal, void>(self, mean, std, std::move(generator));
}
at::Tensor& exponential_(at::Tensor& self, double lambda, GeneratorArgument generator) {
  count<"exponential_">();
  return templates::exponential_impl_<Exponential, void>(self, lambda, std::move(generator));
}
at::Tensor& cauchy_(at::Tensor& self, double median, double sigma, GeneratorArgument generator) {
  count<"cauchy_">();
  return templates::cauchy_impl_<Cauchy, void>(self, median, sigma, std::move(generator));
}
at::Tensor& geometric_(at::Tensor& self, double p, GeneratorArgument generator) {
  count<"geometric_">();
  return templates::geometric_impl_<Geometric, void>(self, p, std::move(generator));
}
at::Tensor& random_(at::Tensor& self, GeneratorArgument generator) {
  count<"random_">();
  return templates::random_impl<Random, void>(self, std::move(generator));
}
at::Tensor& random_from(at::Tensor& self, int64_t from, std::optional<int64_t> to,
                        GeneratorArgument generator) {
  count<"random_.from">();
  return templates::random_from_to_impl<RandomFromTo, void>(self, from, to, std::move(generator));
}
at::Tensor& random_to(at::Tensor& self, int64_t to, GeneratorArgument generator) {
  count<"random_.to">();
  return templates::random_from_to_impl<RandomFromTo, void>(self, 0, to, std::move(generator));
}
at::Tensor& bernoulli_float(at::Tensor& self, double p, GeneratorArgument generator) {
  count<"bernoulli_.float">();
  return templates::bernoulli_impl_<Bernoulli, void>(self, p, std::move(generator));
}
at::Tensor& bernoulli_tensor(at::Tensor& self, const at::Tensor& p, GeneratorArgument generator) {
  count<"bernoulli_.Tensor">();
  return templates::bernoulli_impl_<Bernoulli, void>(self, p, std::move(generator));
}
at::Tensor& bernoulli_out(const at::Tensor& self, GeneratorArgument generator, at::Tensor& out) {
  count<"bernoulli.out">();
  return templates::bernoulli_out_impl<Bernoulli, void>(out, self, std::move(generator));
}

template <Literal kName, class Mean, class Std>
at::Tensor normal(Mean mean, Std std, GeneratorArgument generator) {
  count<kName>();
  return templates::normal_impl<Normal, void>(mean, std, std::move(generator));
}
template <Literal kName, class Mean, class Std>
at::Tensor& normal_out(Mean mean, Std std, GeneratorArgument generator, at::Tensor& out) {
  count<kName>();
  return templates::normal_out_impl<Normal, void>(out, mean, std, std::move(generator));
}

// Fisher and Yates: one word of 64 bits for each element.
at::Tensor& randperm_out(int64_t n, GeneratorArgument generator, at::Tensor& out) {
  count<"randperm.generator_out">();
  TORCH_CHECK(n >= 0, "n must be non-negative, got ", n);
  at::native::check_supported_max_int_with_precision(n, out);
  out.resize_({n});
  if (n == 0) return out;
  write("aten::randperm", out, generator, 2 * n, [n](const at::Tensor& elements, philox::Sequence sequence) {
    ISTHMUS_DISPATCH_NUMBERS(elements.scalar_type(), "randperm", [&] {
      scalar_t* order = elements.mutable_data_ptr<scalar_t>();
      for (int64_t i = 0; i < n; ++i) order[i] = static_cast<scalar_t>(i);
      for (int64_t i = 0; i + 1 < n; ++i) {
        const philox::Block words = sequence[i / 2];
        const uint64_t word = uint64_t{words[2 * (i % 2) + 1]} << 32 | words[2 * (i % 2)];
        std::swap(order[i], order[i + static_cast<int64_t>(word % static_cast<uint64_t>(n - i))]);
      }
    });
  });
  return out;
}

// ---- registration, only where Philox is chosen and the CPU reaches the memory: elsewhere these operators
// have the routes of all others, and their kernels a seed that Philox draws

template <class Function>
void serve(torch::Library& library, const char* name, Function&& function) {
  library.impl(name, std::forward<Function>(function));
  note_route(std::string("aten::") + name, Route::kNative, "Philox (ISTHMUS_HOST_RNG=philox)");
}

void serve_all(torch::Library& library) {
  using at::Tensor;
  serve(library, "uniform_", TORCH_FN(uniform_));
  serve(library, "normal_", TORCH_FN(normal_));
  serve(library, "log_normal_", TORCH_FN(log_normal_));
  serve(library, "exponential_", TORCH_FN(exponential_));
  serve(library, "cauchy_", TORCH_FN(cauchy_));
  serve(library, "geometric_", TORCH_FN(geometric_));
  serve(library, "random_", TORCH_FN(random_));
  serve(library, "random_.from", TORCH_FN(random_from));
  serve(library, "random_.to", TORCH_FN(random_to));
  serve(library, "bernoulli_.float", TORCH_FN(bernoulli_float));
  serve(library, "bernoulli_.Tensor", TORCH_FN(bernoulli_tensor));
  serve(library, "bernoulli.out", TORCH_FN(bernoulli_out));
  serve(library, "normal.Tensor_float", TORCH_FN((normal<"normal.Tensor_float", const Tensor&, double>)));
  serve(library, "normal.float_Tensor", TORCH_FN((normal<"normal.float_Tensor", double, const Tensor&>)));
  serve(library, "normal.Tensor_Tensor",
        TORCH_FN((normal<"normal.Tensor_Tensor", const Tensor&, const Tensor&>)));
  serve(library, "normal.Tensor_float_out",
        TORCH_FN((normal_out<"normal.Tensor_float_out", const Tensor&, double>)));
  serve(library, "normal.float_Tensor_out",
        TORCH_FN((normal_out<"normal.float_Tensor_out", double, const Tensor&>)));
  serve(library, "normal.Tensor_Tensor_out",
        TORCH_FN((normal_out<"normal.Tensor_Tensor_out", const Tensor&, const Tensor&>)));
  serve(library, "randperm.generator_out", TORCH_FN(randperm_out));
}

// CUDA draws nothing for no elements, so that it takes any generator then, and a tensor of the CPU.
bool has_elements(c10::ArrayRef<c10::IValue> arguments) { return arguments[0].toInt() != 0; }

bool randperm_of_nothing(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  const at::Tensor out = torch::jit::pop(*stack).toTensor();
  torch::jit::drop(*stack, 2);
  stack->emplace_back(out.resize_({0}));
  return true;
}

bool uses_philox() {
  try {
    return philox_is_chosen();
  } catch (const options::Error&) {
    return false;  // the first generator raises the error
  }
}

}  // namespace

void register_random() {
  set_partial_kernel("aten::randperm.generator_out", {&has_elements, &randperm_of_nothing});
  if (!uses_philox() || !delegates_to_cpu()) return;
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__,
                                __LINE__);
  serve_all(library);
}

}  // namespace isthmus
