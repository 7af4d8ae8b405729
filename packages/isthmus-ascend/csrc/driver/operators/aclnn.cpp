#include "driver/operators/aclnn.h"

#include <dlfcn.h>

#include <functional>
#include <memory>
#include <unordered_map>
#include <unordered_set>

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

template <typename Convert>
auto convert_list(isthmus_list list, Convert convert) {
  std::vector<decltype(convert(list, 0))> items;
  for (int64_t i = 0; i < list.size; ++i) items.push_back(convert(list, i));
  return items;
}

aclBoolArray* create_bools(isthmus_list list) {
  const auto count = static_cast<size_t>(list.size);
  const auto values = std::make_unique<bool[]>(count);
  for (size_t i = 0; i < count; ++i) values[i] = isthmus_list_int(list, static_cast<int64_t>(i)) != 0;
  return CALL(aclCreateBoolArray, aclBoolArray * (const bool*, uint64_t), values.get(), count);
}

aclFloatArray* create_floats(isthmus_list list) {
  const auto numbers = convert_list(
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
      convert_list(list, [](isthmus_list all, int64_t i) { return create(isthmus_list_tensor(all, i)); }));
}

aclScalarList* create_scalars(isthmus_list list) {
  const auto scalars = convert_list(list, [](isthmus_list all, int64_t i) { return create(item(all, i)); });
  return CALL(aclCreateScalarList, aclScalarList * (aclScalar* const*, uint64_t), scalars.data(),
              scalars.size());
}

// Codes of aclnnStatus. What the first phase refuses goes to the operator's next route.
isthmus_status status_of(int code) {
  if (code >= 161000 && code < 162000) return ISTHMUS_UNSUPPORTED;
  if (code == 207001) return ISTHMUS_OUT_OF_MEMORY;
  return ISTHMUS_DEVICE_ERROR;
}

isthmus_status report_failure(isthmus_context* context, const char* function, int code) {
  const char* said = CALL(aclGetRecentErrMsg, const char*());
  const std::string reason =
      "failed with " + std::to_string(code) + (said == nullptr ? "" : std::string(": ") + said);
  context->explain(context, function, reason.c_str());
  return status_of(code);
}

// An executor that calls with one signature share, and the tensors whose addresses it is given.
struct KeptCall {
  aclOpExecutor* executor;
  uint64_t bytes;  // size of the workspace
  std::vector<aclTensor*> tensors;

  KeptCall(aclOpExecutor* executor, uint64_t bytes) : executor(executor), bytes(bytes) {}
  KeptCall(KeptCall&&) = default;
  KeptCall& operator=(KeptCall&&) = delete;
  ~KeptCall() {
    if (tensors.empty()) return;  // moved from
    CALL(aclDestroyAclOpExecutor, int(aclOpExecutor*), executor);
    for (aclTensor* tensor : tensors) destroy(tensor);
  }
};

// Those of a thread, so that no other one sets addresses between it and the launch.
class KeptCalls {
 public:
  const KeptCall* find(const std::string& signature) const {
    const auto found = calls_.find(signature);
    return found == calls_.end() ? nullptr : &found->second;
  }

  // From the second call on: those with a number that changes each time, such as a seed, come once.
  bool wants(const std::string& signature) {
    if (once_.size() == kMost) once_.clear();
    return !once_.insert(std::hash<std::string>()(signature)).second;
  }

  void keep(const std::string& signature, KeptCall call) {
    if (calls_.size() == kMost) calls_.clear();
    calls_.emplace(signature, std::move(call));
  }

 private:
  static constexpr size_t kMost = 4096;
  std::unordered_map<std::string, KeptCall> calls_;
  std::unordered_set<size_t> once_;
};

KeptCalls& kept_calls() {
  static thread_local KeptCalls calls;
  return calls;
}

using SetTensorAddress = int(aclOpExecutor*, size_t, aclTensor*, void*);

// False if the executor runs once only, as all do in older toolkits.
bool make_repeatable(aclOpExecutor* executor) {
  static auto* const set = reinterpret_cast<int (*)(aclOpExecutor*)>(
      find_in_toolkit("aclSetTensorAddr") ? find_in_toolkit("aclSetAclOpExecutorRepeatable") : nullptr);
  return set != nullptr && set(executor) == 0;
}

}  // namespace

Signature::Buffers& Signature::buffers() {
  static thread_local Buffers buffers;
  return buffers;
}

Signature::Signature(const void* function) : bytes_(buffers().bytes), addresses_(buffers().addresses) {
  bytes_.clear();
  addresses_.clear();
  add(&function, sizeof function);
}

void Signature::add(const DLTensor* tensor) {
  if (tensor == nullptr || tensor->data == nullptr) return refuse();
  const auto size = static_cast<size_t>(tensor->ndim) * sizeof(int64_t);
  add(&tensor->device, sizeof tensor->device);
  add(&tensor->dtype, sizeof tensor->dtype);
  add(tensor->ndim);
  add(tensor->shape, size);
  add(tensor->strides, size);
  addresses_.push_back(tensor->data);
}

void* find_in_toolkit(const char* name) {
  static void* const opened = dlopen("libopapi.so", RTLD_NOW | RTLD_LOCAL);
  return opened == nullptr ? nullptr : dlsym(opened, name);
}

bool read(isthmus_context* context, void* to, const void* from, size_t bytes) {
  constexpr int kDeviceToHost = 2;
  using Copy = int(void*, size_t, const void*, size_t, int, void*);
  return CALL(aclrtMemcpyAsync, Copy, to, bytes, from, bytes, kDeviceToHost, context->stream) == 0 &&
         CALL(aclrtSynchronizeStream, int(void*), context->stream) == 0;
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

Made<aclTensor> Tensor::make() const { return Made<aclTensor>(create(tensor)); }
Made<aclScalar> Scalar::make() const { return Made<aclScalar>(absent ? nullptr : create(number)); }
Made<aclIntArray> Ints::make() const {
  return Made<aclIntArray>(absent ? nullptr
                                  : CALL(aclCreateIntArray, aclIntArray * (const int64_t*, uint64_t),
                                         numbers.data(), numbers.size()));
}

void Scalar::sign(Signature& signature) const {
  signature.add(absent ? -1 : number.kind);
  signature.add(number.as_int);
  signature.add(&number.as_double, sizeof number.as_double);
}

void Ints::sign(Signature& signature) const {
  signature.add(absent ? -1 : static_cast<int64_t>(numbers.size()));
  signature.add(numbers.data(), numbers.size() * sizeof(int64_t));
}

Ints::Ints(isthmus_list list)
    : numbers(list.size < 0 ? std::vector<int64_t>() : convert_list(list, isthmus_list_int)),
      absent(list.size < 0) {}
Bools::Bools(isthmus_list list) : Rare(create_bools(list)) {}
Floats::Floats(isthmus_list list) : Rare(create_floats(list)) {}
Tensors::Tensors(isthmus_list list) : Rare(create_tensors(list)) {}
Tensors::Tensors(const std::vector<const DLTensor*>& tensors)
    : Rare(tensor_list([&] {
        std::vector<aclTensor*> created;
        for (const DLTensor* tensor : tensors) created.push_back(create(tensor));
        return created;
      }())) {}
Scalars::Scalars(isthmus_list list) : Rare(create_scalars(list)) {}

bool Entry::found() {
  if (launch_ != nullptr) return true;
  prepare_ = find_in_toolkit((std::string(name_) + "GetWorkspaceSize").c_str());
  launch_ = find_in_toolkit(name_);
  return prepare_ != nullptr && launch_ != nullptr;
}

isthmus_status Entry::enqueue(isthmus_context* context, uint64_t bytes, aclOpExecutor* executor) const {
  void* workspace = nullptr;
  if (bytes != 0 && (workspace = context->workspace(context, bytes)) == nullptr) return ISTHMUS_OUT_OF_MEMORY;
  using Launch = int (*)(void*, uint64_t, aclOpExecutor*, void*);
  const int code = reinterpret_cast<Launch>(launch_)(workspace, bytes, executor, context->stream);
  return code == 0 ? ISTHMUS_OK : report_failure(context, name_, code);
}

bool Entry::launch_kept(isthmus_context* context, const Signature& signature, isthmus_status* status) const {
  const KeptCall* const kept = signature.shared() ? kept_calls().find(signature.bytes()) : nullptr;
  if (kept == nullptr) return false;
  for (size_t i = 0; i < kept->tensors.size(); ++i) {
    const int code = CALL(aclSetTensorAddr, SetTensorAddress, kept->executor, i, kept->tensors[i],
                          signature.addresses()[i]);
    if (code == 0) continue;
    *status = report_failure(context, name_, code);
    return true;
  }
  *status = enqueue(context, kept->bytes, kept->executor);
  return true;
}

isthmus_status Entry::launch(isthmus_context* context, const Signature& signature, int code, uint64_t bytes,
                             aclOpExecutor* executor, const Tensors& tensors) const {
  if (code != 0) return report_failure(context, name_, code);
  const bool keeps = signature.shared() && kept_calls().wants(signature.bytes()) && make_repeatable(executor);
  const isthmus_status status = enqueue(context, bytes, executor);
  if (!keeps) return status;
  KeptCall kept(executor, bytes);
  for (Made<aclTensor>* tensor : tensors) kept.tensors.push_back(tensor->release());
  kept_calls().keep(signature.bytes(), std::move(kept));
  return status;
}

}  // namespace isthmus::npu
