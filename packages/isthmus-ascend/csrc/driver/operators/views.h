// Tensors that a kernel creates: views of its arguments, and temporary memory.
#pragma once

#include <vector>

#include "driver/operators/aclnn.h"

namespace isthmus::npu {

// A tensor with shape and strides of its own, over another one's memory.
class View {
 public:
  explicit View(const DLTensor* of);
  View(const View& of) : View(&of.tensor_) {}
  View& operator=(const View&) = delete;

  // One dimension of all elements; the tensor is contiguous.
  View& flatten();
  // Other sizes of a contiguous tensor with as many elements.
  View& reshape(std::vector<int64_t> shape);
  // A dimension of a size in which every element is the same.
  View& insert(int64_t dim, int64_t size = 1);
  View& transpose(size_t a, size_t b);
  View& select(int64_t dim, int64_t index);
  View& slice(int64_t dim, int64_t start, int64_t end, int64_t step);
  operator const DLTensor*() const { return &tensor_; }

 protected:
  // View to be laid out, without memory.
  View(std::vector<int64_t> shape, DLDataType dtype);
  void point();
  // Makes it contiguous; returns its elements.
  int64_t lay_out();

  DLTensor tensor_;
  std::vector<int64_t> shape_, strides_;
};

// Contiguous memory of the call with the shape of a tensor.
class Temporary : public View {
 public:
  Temporary(isthmus_context* context, const DLTensor* like) : Temporary(context, like, like->dtype) {}
  Temporary(isthmus_context* context, const DLTensor* like, DLDataType dtype);
  Temporary(isthmus_context* context, std::vector<int64_t> shape, DLDataType dtype);
  // Whether there was memory for it.
  explicit operator bool() const { return ready_; }
  using View::operator const DLTensor*;

 private:
  bool ready_ = false;
};

// Calls body with a weight; where it is absent with ones, because the vendor's function needs it.
template <typename Body>
isthmus_status with_weight(isthmus_context* context, const DLTensor* weight, const DLTensor* like,
                           int64_t size, Body&& body) {
  if (weight != nullptr) return body(weight);
  const Temporary ones(context, std::vector<int64_t>{size}, like->dtype);
  if (!ones) return ISTHMUS_OUT_OF_MEMORY;
  const isthmus_status filled = aclnn::InplaceOne(context, ones);
  return filled == ISTHMUS_OK ? body(static_cast<const DLTensor*>(ones)) : filled;
}

constexpr DLDataType kBoolType{kDLBool, 8, 1}, kInt32Type{kDLInt, 32, 1}, kFloatType{kDLFloat, 32, 1};

int64_t wrapped(int64_t dim, int rank);
std::vector<int64_t> sizes(const DLTensor* tensor);
// The dimensions of a list; all where it is absent or empty.
std::vector<int64_t> dims_or_all(const DLTensor* tensor, isthmus_list dims = {-1, nullptr});

}  // namespace isthmus::npu

// Returns the status of a call unless it is ISTHMUS_OK.
#define ISTHMUS_TRY(...)                                                                     \
  do {                                                                                       \
    if (const isthmus_status status_ = (__VA_ARGS__); status_ != ISTHMUS_OK) return status_; \
  } while (false)
// A temporary, or the end of the kernel.
#define ISTHMUS_TEMPORARY(name, ...)          \
  const Temporary name(context, __VA_ARGS__); \
  if (!name) return ISTHMUS_OUT_OF_MEMORY
