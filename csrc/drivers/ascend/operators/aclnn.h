// Calls of aclnn functions: two phases, of which the first computes the size of the workspace and the second
// enqueues. A function is an object with the types of functions.table; it takes what a kernel gets.
//
//   Add(context, self, other, alpha, out)
#pragma once

#include <initializer_list>
#include <string>
#include <type_traits>
#include <vector>

#include "isthmus_ops.h"

struct aclTensor;
struct aclTensorList;
struct aclScalar;
struct aclScalarList;
struct aclIntArray;
struct aclFloatArray;
struct aclBoolArray;
struct aclOpExecutor;

namespace isthmus::npu {

// A function of libopapi.so; null if there is none, or no such library.
void* find_in_toolkit(const char* name);

// What the vendor calls aclDataType; -1 for a dtype that it lacks.
int data_type(DLDataType dtype);

// A number of a list.
isthmus_scalar item(isthmus_list list, int64_t i);

void destroy(const aclTensor* handle);
void destroy(const aclTensorList* handle);
void destroy(const aclScalar* handle);
void destroy(const aclScalarList* handle);
void destroy(const aclIntArray* handle);
void destroy(const aclFloatArray* handle);
void destroy(const aclBoolArray* handle);

// Values that are made of a kernel's arguments for one call. An absent one is null.
template <typename Handle>
class Value {
 public:
  using Given = const Handle*;
  Value(const Value&) = delete;
  Value& operator=(const Value&) = delete;
  ~Value() {
    if (handle_ != nullptr) destroy(handle_);
  }
  Given get() const { return handle_; }

 protected:
  explicit Value(Handle* handle) : handle_(handle) {}

 private:
  Handle* const handle_;
};

template <typename T>
using IfTensor = std::enable_if_t<std::is_convertible_v<const T&, const DLTensor*>>;

struct Tensor : Value<aclTensor> {
  Tensor(const DLTensor* tensor);
  template <typename T, typename = IfTensor<T>>
  Tensor(const T& tensor) : Tensor(static_cast<const DLTensor*>(tensor)) {}
};

struct Scalar : Value<aclScalar> {
  Scalar(isthmus_scalar number);
  Scalar(const isthmus_scalar* number);
  Scalar(double number);
  Scalar(int64_t number);
};

struct Ints : Value<aclIntArray> {
  Ints(isthmus_list list);
  Ints(std::initializer_list<int64_t> numbers) : Ints(std::vector<int64_t>(numbers)) {}
  Ints(const std::vector<int64_t>& numbers);
  Ints(std::nullptr_t) : Value(nullptr) {}
};

struct Bools : Value<aclBoolArray> {
  Bools(isthmus_list list);
};

struct Floats : Value<aclFloatArray> {
  Floats(isthmus_list list);
};

struct Tensors : Value<aclTensorList> {
  Tensors(isthmus_list list);
  Tensors(std::initializer_list<const DLTensor*> tensors) : Tensors(std::vector<const DLTensor*>(tensors)) {}
  Tensors(const std::vector<const DLTensor*>& tensors);
  Tensors(std::nullptr_t) : Value(nullptr) {}
};

struct Scalars : Value<aclScalarList> {
  Scalars(isthmus_list list);
};

// A number or a text, which travels as it is.
template <typename T>
class Plain {
 public:
  using Given = T;
  template <typename From,
            typename = std::enable_if_t<std::is_floating_point_v<From> == std::is_floating_point_v<T> &&
                                        std::is_convertible_v<From, T>>>
  Plain(From value) : value_(static_cast<T>(value)) {}
  Given get() const { return value_; }

 private:
  T value_;
};

struct Dtype {
  using Given = int32_t;
  template <typename T, typename = IfTensor<T>>
  Dtype(const T& of) : value_(data_type(static_cast<const DLTensor*>(of)->dtype)) {}
  Given get() const { return value_; }

 private:
  int32_t value_;
};

// Both phases of a function; null where the toolkit lacks it.
class Entry {
 public:
  explicit constexpr Entry(const char* name) : name_(name) {}
  bool found();

 protected:
  isthmus_status launch(isthmus_context* context, int code, uint64_t bytes, aclOpExecutor* executor) const;

  const char* const name_;
  void *prepare_ = nullptr, *launch_ = nullptr;
};

template <typename... Parameters>
class Function : public Entry {
 public:
  using Entry::Entry;

  isthmus_status operator()(isthmus_context* context, const Parameters&... values) const {
    using Prepare = int (*)(typename Parameters::Given..., uint64_t*, aclOpExecutor**);
    uint64_t bytes = 0;
    aclOpExecutor* executor = nullptr;
    const int code = reinterpret_cast<Prepare>(prepare_)(values.get()..., &bytes, &executor);
    return launch(context, code, bytes, executor);
  }
};

}  // namespace isthmus::npu

#include "groups/aclnn_functions.h"  // generated from functions.table
