// Fourier transforms of float16 and complex32 tensors, which PyTorch's composites take on CUDA alone. They
// are computed in float32.
#include <ATen/core/Tensor.h>
#include <torch/library.h>

namespace isthmus {
namespace {

bool is_half(at::ScalarType dtype) { return dtype == at::kHalf || dtype == at::kComplexHalf; }

at::Tensor widen(const at::Tensor& tensor) {
  return tensor.to(tensor.is_complex() ? at::kComplexFloat : at::kFloat);
}

at::Tensor narrow(const at::Tensor& tensor) {
  return tensor.to(tensor.is_complex() ? at::kComplexHalf : at::kHalf);
}

// Registered above autograd, too, as the composite is: the gradient is that of its parts.
void transform(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const auto& declared = op.schema().arguments();
  c10::IValue* const arguments = stack->data() + stack->size() - declared.size();
  const bool half = is_half(arguments[0].toTensor().scalar_type());
  at::Tensor out;
  if (half) {
    arguments[0] = widen(arguments[0].toTensor());
    if (declared.back().is_out()) {
      c10::IValue& last = arguments[declared.size() - 1];
      out = last.toTensor();
      TORCH_CHECK(is_half(out.scalar_type()), op.schema().name(),
                  " of a 16-bit dtype expects out of one, got ", out.scalar_type());
      last = widen(out);
    }
  }
  op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, *stack);
  if (!half) return;
  const at::Tensor result = stack->back().toTensor();
  if (!out.defined()) {
    stack->back() = narrow(result);
    return;
  }
  if (out.sizes() != result.sizes()) out.resize_(result.sizes());
  stack->back() = out.copy_(result);
}

constexpr const char* kTransforms[] = {
    "fft_fft",  "fft_ifft",  "fft_rfft",  "fft_irfft",  "fft_hfft",  "fft_ihfft",
    "fft_fft2", "fft_ifft2", "fft_rfft2", "fft_irfft2", "fft_hfft2", "fft_ihfft2",
    "fft_fftn", "fft_ifftn", "fft_rfftn", "fft_irfftn", "fft_hfftn", "fft_ihfftn",
};

void register_transforms(torch::Library& library) {
  for (const std::string name : kTransforms)
    for (const char* overload : {"", ".out"})
      library.impl((name + overload).c_str(), torch::CppFunction::makeFromBoxedFunction<&transform>());
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { register_transforms(m); }
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { register_transforms(m); }

}  // namespace
}  // namespace isthmus
