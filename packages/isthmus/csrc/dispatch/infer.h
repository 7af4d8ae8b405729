// Shapes and dtypes of an operator's results, from PyTorch's own meta kernels, remembered per geometry.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

namespace isthmus {

struct TensorMeta {
  bool defined = true;
  at::DimVector sizes, strides;
  at::ScalarType dtype = at::kFloat;
};

// Results in their order; a result that is a list has one entry per tensor.
struct ResultMeta {
  struct Result {
    bool is_list = false;
    std::vector<TensorMeta> tensors;
  };
  std::vector<Result> results;
};

class Inference {
 public:
  explicit Inference(const c10::OperatorHandle& op) : op_(op) {}

  // Results of the operator for these arguments (the schema's, in order). The reference stays valid.
  // Throws PyTorch's errors for invalid arguments.
  std::shared_ptr<const ResultMeta> operator()(c10::ArrayRef<c10::IValue> arguments);

 private:
  using Key = c10::SmallVector<int64_t, 48>;
  struct Hash {
    size_t operator()(const Key& key) const noexcept;
  };

  std::shared_ptr<const ResultMeta> run(c10::ArrayRef<c10::IValue> arguments) const;

  const c10::OperatorHandle op_;
  std::mutex mutex_;
  std::unordered_map<Key, std::shared_ptr<const ResultMeta>, Hash> known_;
};

}  // namespace isthmus
