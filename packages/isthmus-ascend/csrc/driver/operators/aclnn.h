// Calls of aclnn functions: two phases, of which the first computes the size of the workspace and the second
// enqueues. A function is an object with the types of functions.table; it takes what a kernel gets.
//
//   Add(context, self, other, alpha, out)
#pragma once

#include <cstring>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>
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

// Copies device memory to the host, after the stream's work so far; false if it cannot be waited for.
bool read(isthmus_context* context, void* to, const void* from, size_t bytes);

// The vendor's aclDataType; -1 for a dtype that it lacks.
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

// Inputs of the first phase of a call: calls with equal signatures share an executor, which is given
// the addresses of each call's tensors.
class Signature {
 public:
  // function: identifies it.
  explicit Signature(const void* function);

  void add(int64_t number) { add(&number, sizeof number); }
  void add(const void* bytes, size_t count) { bytes_.append(static_cast<const char*>(bytes), count); }
  void add(const DLTensor* tensor);
  // Marks a call whose executor serves no other one: tensors in lists, absent and empty ones.
  void refuse() { shared_ = false; }

  bool shared() const { return shared_; }
  const std::string& bytes() const { return bytes_; }
  const std::vector<void*>& addresses() const { return addresses_; }

 private:
  struct Buffers {  // one per thread; calls of a thread do not nest
    std::string bytes;
    std::vector<void*> addresses;
  };
  static Buffers& buffers();

  std::string& bytes_;
  std::vector<void*>& addresses_;
  bool shared_ = true;
};

// A value that is made of a kernel's arguments for one call. An absent one is null.
template <typename Handle>
class Made {
 public:
  explicit Made(Handle* handle) : handle_(handle) {}
  Made(const Made&) = delete;
  Made& operator=(const Made&) = delete;
  ~Made() {
    if (handle_ != nullptr) destroy(handle_);
  }
  const Handle* get() const { return handle_; }
  Handle* release() { return std::exchange(handle_, nullptr); }

 private:
  Handle* handle_;
};

template <typename T>
using IfTensor = std::enable_if_t<std::is_convertible_v<const T&, const DLTensor*>>;

// Parameters of the functions below: what a kernel gives, how it enters the signature, and what the vendor's
// function takes.
struct Tensor {
  using Given = const aclTensor*;
  Tensor(const DLTensor* tensor) : tensor(tensor) {}
  template <typename T, typename = IfTensor<T>>
  Tensor(const T& tensor) : Tensor(static_cast<const DLTensor*>(tensor)) {}
  void sign(Signature& signature) const { signature.add(tensor); }
  Made<aclTensor> make() const;

  const DLTensor* tensor;
};

struct Scalar {
  using Given = const aclScalar*;
  Scalar(isthmus_scalar number) : number(number) {}
  Scalar(const isthmus_scalar* given)
      : number(given == nullptr ? isthmus_scalar{} : *given), absent(!given) {}
  Scalar(double number) : Scalar(isthmus_scalar{ISTHMUS_SCALAR_FLOAT, 0, number}) {}
  Scalar(int64_t number) : Scalar(isthmus_scalar{ISTHMUS_SCALAR_INT, number, 0}) {}
  void sign(Signature& signature) const;
  Made<aclScalar> make() const;

  isthmus_scalar number;
  bool absent = false;
};

struct Ints {
  using Given = const aclIntArray*;
  Ints(isthmus_list list);
  Ints(std::initializer_list<int64_t> numbers) : numbers(numbers) {}
  Ints(const std::vector<int64_t>& numbers) : numbers(numbers) {}
  Ints(std::nullptr_t) : absent(true) {}
  void sign(Signature& signature) const;
  Made<aclIntArray> make() const;

  std::vector<int64_t> numbers;
  bool absent = false;
};

// The others are rare: their calls share no executor.
template <typename Handle>
class Rare : public Made<Handle> {
 public:
  using Given = const Handle*;
  void sign(Signature& signature) const { signature.refuse(); }
  const Rare& make() const { return *this; }

 protected:
  using Made<Handle>::Made;
};

struct Bools : Rare<aclBoolArray> {
  Bools(isthmus_list list);
};

struct Floats : Rare<aclFloatArray> {
  Floats(isthmus_list list);
};

struct Tensors : Rare<aclTensorList> {
  Tensors(isthmus_list list);
  Tensors(std::initializer_list<const DLTensor*> tensors) : Tensors(std::vector<const DLTensor*>(tensors)) {}
  Tensors(const std::vector<const DLTensor*>& tensors);
  Tensors(std::nullptr_t) : Rare(nullptr) {}
};

struct Scalars : Rare<aclScalarList> {
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
  void sign(Signature& signature) const {
    if constexpr (std::is_same_v<T, const char*>)
      signature.add(value_, std::strlen(value_) + 1);
    else
      signature.add(&value_, sizeof value_);
  }
  const Plain& make() const { return *this; }
  Given get() const { return value_; }

 private:
  T value_;
};

struct Dtype {
  using Given = int32_t;
  template <typename T, typename = IfTensor<T>>
  Dtype(const T& of) : value(data_type(static_cast<const DLTensor*>(of)->dtype)) {}
  void sign(Signature& signature) const { signature.add(value); }
  const Dtype& make() const { return *this; }
  Given get() const { return value; }

  int32_t value;
};

// Both phases of a function; null where the toolkit lacks it.
class Entry {
 public:
  explicit constexpr Entry(const char* name) : name_(name) {}
  bool found();

 protected:
  using Tensors = std::vector<Made<aclTensor>*>;
  // Launches an executor that an earlier call with the signature left. False if there is none.
  bool launch_kept(isthmus_context* context, const Signature& signature, isthmus_status* status) const;
  // Launches what the first phase made. An executor that may serve other calls is kept, with its tensors.
  isthmus_status launch(isthmus_context* context, const Signature& signature, int code, uint64_t bytes,
                        aclOpExecutor* executor, const Tensors& tensors) const;

  const char* const name_;
  void *prepare_ = nullptr, *launch_ = nullptr;

 private:
  isthmus_status enqueue(isthmus_context* context, uint64_t bytes, aclOpExecutor* executor) const;
};

template <typename... Parameters>
class Function : public Entry {
 public:
  using Entry::Entry;

  isthmus_status operator()(isthmus_context* context, const Parameters&... values) const {
    Signature signature(this);
    (values.sign(signature), ...);
    isthmus_status status;
    if (launch_kept(context, signature, &status)) return status;
    return [&](auto&&... made) {
      using Prepare = int (*)(typename Parameters::Given..., uint64_t*, aclOpExecutor**);
      uint64_t bytes = 0;
      aclOpExecutor* executor = nullptr;
      const int code = reinterpret_cast<Prepare>(prepare_)(made.get()..., &bytes, &executor);
      Tensors tensors;
      (collect(made, tensors), ...);
      return launch(context, signature, code, bytes, executor, tensors);
    }(values.make()...);
  }

 private:
  static void collect(Made<aclTensor>& made, Tensors& tensors) { tensors.push_back(&made); }
  template <typename Other>
  static void collect(const Other&, Tensors&) {}
};

}  // namespace isthmus::npu

#include "aclnn_functions.h"  // generated from functions.table
