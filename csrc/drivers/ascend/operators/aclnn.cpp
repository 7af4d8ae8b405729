#include "drivers/ascend/operators/aclnn.h"

#include <dlfcn.h>

#include <memory>

namespace isthmus::npu {
namespace {

constexpr int kFormatNd = 2;
constexpr int kInt64 = 9, kDouble = 11, kBool = 12;

// A function of the toolkit, looked up once: every toolkit that has aclnn functions has these.
#define CALL(name, type, ...)                                                                         \
  ([&] {                                                                                              \
    static auto* const function = reinterpret_cast<std::add_pointer_t<type>>(find_in_toolkit(#name)); \
    return function(__VA_ARGS__);                                                                     \
  }())

using CreateTensor = aclTensor*(const int64_t*, uint64_t, int, const int64_t*, int64_t, int, const int64_t*,
                                uint64_t, void*);
using CreateScalar = aclScalar*(void*, int);

bool contiguous(const DLTensor& tensor) {
  int64_t step = 1;
  for (int i = tensor.ndim - 1; i >= 0; --i) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != step) return false;
    step *= tensor.shape[i];
  }
  return true;
}

// Elements of the storage from the first to the last one of a view.
int64_t extent(const DLTensor& tensor) {
  int64_t last = 0;
  for (int i = 0; i < tensor.ndim; ++i) {
    if (tensor.shape[i] == 0) return 0;
    last += (tensor.shape[i] - 1) * tensor.strides[i];
  }
  return last + 1;
}

aclTensor* create(const DLTensor* tensor) {
  if (tensor == nullptr) return nullptr;
  const auto rank = static_cast<uint64_t>(tensor->ndim);
  const bool whole = contiguous(*tensor);
  const int64_t stored = whole ? 0 : extent(*tensor);
  return CALL(aclCreateTensor, CreateTensor, tensor->shape, rank, data_type(tensor->dtype), tensor->strides,
              0, kFormatNd, whole ? tensor->shape : &stored, whole ? rank : 1, tensor->data);
}

aclScalar* create(isthmus_scalar number) {
  if (number.kind == ISTHMUS_SCALAR_FLOAT)
    return CALL(aclCreateScalar, CreateScalar, &number.as_double, kDouble);
  if (number.kind == ISTHMUS_SCALAR_INT) return CALL(aclCreateScalar, CreateScalar, &number.as_int, kInt64);
  bool value = number.as_int != 0;
  return CALL(aclCreateScalar, CreateScalar, &value, kBool);
}

aclIntArray* ints(const int64_t* numbers, size_t count) {
  return CALL(aclCreateIntArray, aclIntArray * (const int64_t*, uint64_t), numbers, count);
}

template <typename Convert>
auto collected(isthmus_list list, Convert convert) {
  std::vector<decltype(convert(list, 0))> items;
  for (int64_t i = 0; i < list.size; ++i) items.push_back(convert(list, i));
  return items;
}

aclIntArray* create_ints(isthmus_list list) {
  if (list.size < 0) return nullptr;
  const auto numbers = collected(list, isthmus_list_int);
  return ints(numbers.data(), numbers.size());
}

aclBoolArray* create_bools(isthmus_list list) {
  const auto count = static_cast<size_t>(list.size);
  const auto values = std::make_unique<bool[]>(count);
  for (size_t i = 0; i < count; ++i) values[i] = isthmus_list_int(list, static_cast<int64_t>(i)) != 0;
  return CALL(aclCreateBoolArray, aclBoolArray * (const bool*, uint64_t), values.get(), count);
}

aclFloatArray* create_floats(isthmus_list list) {
  const auto numbers = collected(
      list, [](isthmus_list all, int64_t i) { return static_cast<float>(isthmus_list_double(all, i)); });
  return CALL(aclCreateFloatArray, aclFloatArray * (const float*, uint64_t), numbers.data(), numbers.size());
}

// The list owns its tensors.
aclTensorList* tensor_list(const std::vector<aclTensor*>& tensors) {
  return CALL(aclCreateTensorList, aclTensorList * (aclTensor* const*, uint64_t), tensors.data(),
              tensors.size());
}

aclTensorList* create_tensors(isthmus_list list) {
  if (list.size < 0) return nullptr;
  return tensor_list(
      collected(list, [](isthmus_list all, int64_t i) { return create(isthmus_list_tensor(all, i)); }));
}

aclScalarList* create_scalars(isthmus_list list) {
  const auto scalars = collected(list, [](isthmus_list all, int64_t i) { return create(item(all, i)); });
  return CALL(aclCreateScalarList, aclScalarList * (aclScalar* const*, uint64_t), scalars.data(),
              scalars.size());
}

// Codes of aclnnStatus. What the first phase refuses goes to the operator's next route.
isthmus_status status_of(int code) {
  if (code >= 161000 && code < 162000) return ISTHMUS_UNSUPPORTED;
  if (code == 207001) return ISTHMUS_OUT_OF_MEMORY;
  return ISTHMUS_DEVICE_ERROR;
}

isthmus_status failed(isthmus_context* context, const char* function, int code) {
  const char* said = CALL(aclGetRecentErrMsg, const char*());
  const std::string reason =
      "failed with " + std::to_string(code) + (said == nullptr ? "" : std::string(": ") + said);
  context->explain(context, function, reason.c_str());
  return status_of(code);
}

}  // namespace

void* find_in_toolkit(const char* name) {
  static void* const opened = dlopen("libopapi.so", RTLD_NOW | RTLD_LOCAL);
  return opened == nullptr ? nullptr : dlsym(opened, name);
}

isthmus_scalar item(isthmus_list list, int64_t i) {
  const TVMFFIAny& any = list.items[i];
  if (any.type_index == kTVMFFIFloat) return {ISTHMUS_SCALAR_FLOAT, 0, any.v_float64};
  return {any.type_index == kTVMFFIBool ? ISTHMUS_SCALAR_BOOL : ISTHMUS_SCALAR_INT, any.v_int64, 0};
}

int data_type(DLDataType dtype) {
  if (dtype.lanes != 1) return -1;
  switch (dtype.code << 8 | dtype.bits) {
    case kDLFloat << 8 | 32:
      return 0;
    case kDLFloat << 8 | 16:
      return 1;
    case kDLInt << 8 | 8:
      return 2;
    case kDLInt << 8 | 32:
      return 3;
    case kDLUInt << 8 | 8:
      return 4;
    case kDLInt << 8 | 16:
      return 6;
    case kDLUInt << 8 | 16:
      return 7;
    case kDLUInt << 8 | 32:
      return 8;
    case kDLInt << 8 | 64:
      return kInt64;
    case kDLUInt << 8 | 64:
      return 10;
    case kDLFloat << 8 | 64:
      return kDouble;
    case kDLBool << 8 | 8:
      return kBool;
    case kDLComplex << 8 | 64:
      return 16;
    case kDLComplex << 8 | 128:
      return 17;
    case kDLBfloat << 8 | 16:
      return 27;
    case kDLFloat8_e5m2 << 8 | 8:
      return 35;
    case kDLFloat8_e4m3fn << 8 | 8:
      return 36;
    default:
      return -1;
  }
}

void destroy(const aclTensor* handle) { CALL(aclDestroyTensor, int(const aclTensor*), handle); }
void destroy(const aclTensorList* handle) { CALL(aclDestroyTensorList, int(const aclTensorList*), handle); }
void destroy(const aclScalar* handle) { CALL(aclDestroyScalar, int(const aclScalar*), handle); }
void destroy(const aclScalarList* handle) { CALL(aclDestroyScalarList, int(const aclScalarList*), handle); }
void destroy(const aclIntArray* handle) { CALL(aclDestroyIntArray, int(const aclIntArray*), handle); }
void destroy(const aclFloatArray* handle) { CALL(aclDestroyFloatArray, int(const aclFloatArray*), handle); }
void destroy(const aclBoolArray* handle) { CALL(aclDestroyBoolArray, int(const aclBoolArray*), handle); }

Tensor::Tensor(const DLTensor* tensor) : Value(create(tensor)) {}
Scalar::Scalar(isthmus_scalar number) : Value(create(number)) {}
Scalar::Scalar(const isthmus_scalar* number) : Value(number == nullptr ? nullptr : create(*number)) {}
Scalar::Scalar(double number) : Scalar(isthmus_scalar{ISTHMUS_SCALAR_FLOAT, 0, number}) {}
Scalar::Scalar(int64_t number) : Scalar(isthmus_scalar{ISTHMUS_SCALAR_INT, number, 0}) {}
Ints::Ints(isthmus_list list) : Value(create_ints(list)) {}
Ints::Ints(const std::vector<int64_t>& numbers) : Value(ints(numbers.data(), numbers.size())) {}
Bools::Bools(isthmus_list list) : Value(create_bools(list)) {}
Floats::Floats(isthmus_list list) : Value(create_floats(list)) {}
Tensors::Tensors(isthmus_list list) : Value(create_tensors(list)) {}
Tensors::Tensors(const std::vector<const DLTensor*>& tensors)
    : Value(tensor_list([&] {
        std::vector<aclTensor*> created;
        for (const DLTensor* tensor : tensors) created.push_back(create(tensor));
        return created;
      }())) {}
Scalars::Scalars(isthmus_list list) : Value(create_scalars(list)) {}

bool Entry::found() {
  if (launch_ != nullptr) return true;
  prepare_ = find_in_toolkit((std::string(name_) + "GetWorkspaceSize").c_str());
  launch_ = find_in_toolkit(name_);
  return prepare_ != nullptr && launch_ != nullptr;
}

isthmus_status Entry::launch(isthmus_context* context, int code, uint64_t bytes,
                             aclOpExecutor* executor) const {
  if (code != 0) return failed(context, name_, code);
  void* workspace = nullptr;
  if (bytes != 0 && (workspace = context->workspace(context, bytes)) == nullptr) return ISTHMUS_OUT_OF_MEMORY;
  using Launch = int (*)(void*, uint64_t, aclOpExecutor*, void*);
  code = reinterpret_cast<Launch>(launch_)(workspace, bytes, executor, context->stream);
  return code == 0 ? ISTHMUS_OK : failed(context, name_, code);
}

}  // namespace isthmus::npu
