#include "opapi/objects.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>

#include "acl/enqueue.h"
#include "opapi/calls.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace isthmus::ascend {

// Numbers of aclDataType.
std::optional<at::ScalarType> scalar_type_of(int acl_data_type) {
  switch (acl_data_type) {
    case 0:
      return at::kFloat;
    case 1:
      return at::kHalf;
    case 2:
      return at::kChar;
    case 3:
      return at::kInt;
    case 4:
      return at::kByte;
    case 6:
      return at::kShort;
    case 7:
      return at::kUInt16;
    case 8:
      return at::kUInt32;
    case 9:
      return at::kLong;
    case 10:
      return at::kUInt64;
    case 11:
      return at::kDouble;
    case 12:
      return at::kBool;
    case 16:
      return at::kComplexFloat;
    case 17:
      return at::kComplexDouble;
    case 27:
      return at::kBFloat16;
    case 33:
      return at::kComplexHalf;
    case 35:
      return at::kFloat8_e5m2;
    case 36:
      return at::kFloat8_e4m3fn;
    case 37:
      return at::kFloat8_e8m0fnu;
    default:
      return std::nullopt;
  }
}

namespace {

template <typename T>
c10::Scalar scalar_at(const void* value) {
  return c10::Scalar(*static_cast<const T*>(value));
}

std::optional<c10::Scalar> read_scalar(const void* value, int acl_data_type) {
  switch (acl_data_type) {
    case 0:
      return scalar_at<float>(value);
    case 1:
      return scalar_at<at::Half>(value);
    case 2:
      return scalar_at<int8_t>(value);
    case 3:
      return scalar_at<int32_t>(value);
    case 4:
      return scalar_at<uint8_t>(value);
    case 6:
      return scalar_at<int16_t>(value);
    case 9:
      return scalar_at<int64_t>(value);
    case 11:
      return scalar_at<double>(value);
    case 12:
      return scalar_at<bool>(value);
    case 16:
      return scalar_at<c10::complex<float>>(value);
    case 17:
      return scalar_at<c10::complex<double>>(value);
    case 27:
      return scalar_at<at::BFloat16>(value);
    default:
      return std::nullopt;
  }
}

// Bytes from the base of the storage to the end of the view's last element.
size_t span(at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset, size_t item) {
  constexpr const char* kTooLarge = "the shape needs more bytes than there are addresses";
  TORCH_CHECK(offset >= 0, "offset is ", offset, ", expected at least 0");
  int64_t elements = 1, last = offset, bytes = 0;
  bool empty = false;
  for (size_t i = 0; i < sizes.size(); ++i) {
    int64_t step = 0;
    TORCH_CHECK(sizes[i] >= 0, "dimension ", i, " is ", sizes[i], ", expected at least 0");
    TORCH_CHECK(sizes[i] < 2 || strides[i] >= 0, "stride ", i, " is ", strides[i], ", expected at least 0");
    empty |= sizes[i] == 0;
    const bool overflow = __builtin_mul_overflow(elements, std::max<int64_t>(sizes[i], 1), &elements) ||
                          (sizes[i] > 1 && (__builtin_mul_overflow(sizes[i] - 1, strides[i], &step) ||
                                            __builtin_add_overflow(last, step, &last)));
    TORCH_CHECK(!overflow, kTooLarge);
  }
  if (empty) return 0;
  int64_t dense = 0;
  const bool overflow = __builtin_mul_overflow(last, static_cast<int64_t>(item), &bytes) ||
                        __builtin_add_overflow(bytes, static_cast<int64_t>(item), &bytes) ||
                        __builtin_mul_overflow(elements, static_cast<int64_t>(item), &dense);
  TORCH_CHECK(!overflow, kTooLarge);
  return static_cast<size_t>(bytes);
}

}  // namespace

Descriptor describe(at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset, at::ScalarType dtype,
                    void* data) {
  const size_t bytes = span(sizes, strides, offset, c10::elementSize(dtype));
  c10::impl::SizesAndStrides layout;
  layout.set_sizes(sizes);
  layout.set_strides(strides);
  return {data, bytes, offset, std::move(layout), dtype, {}};
}

at::Tensor view(const Descriptor& given) {
  if (given.dtype == at::ScalarType::Undefined) return {};
  if (given.owner.defined()) return given.owner;
  c10::Storage storage(c10::Storage::use_byte_size_t(), given.bytes, c10::DataPtr(given.data, c10::kCPU),
                       nullptr, false);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), c10::scalarTypeToTypeMeta(given.dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(given.layout.sizes_arrayref(),
                                                      given.layout.strides_arrayref(), given.offset);
  return tensor;
}

namespace {

// Handle of what the body returns; null on an exception, whose message is kept.
template <typename Handle, typename Body>
Handle* create(const char* function, Body&& body) noexcept {
  try {
    return static_cast<Handle*>(body());
  } catch (const c10::Error& error) {
    isthmus_ascend_report(kInvalidParameter, function, error.what_without_backtrace());
  } catch (const std::exception& error) {
    isthmus_ascend_report(kInvalidParameter, function, error.what());
  }
  return nullptr;
}

// A copy of the caller's array.
template <typename Value, typename Given>
std::vector<Value> list(const Given* values, uint64_t count) {
  constexpr uint64_t kMost = uint64_t{1} << 24;  // limit of any list of operators' arguments
  TORCH_CHECK(count <= kMost, "the list has ", count, " elements, expected at most ", kMost);
  TORCH_CHECK(count == 0 || values, "the list of ", count, " elements is null");
  constexpr size_t kPage = 4096;  // a list that is this long is looked up
  TORCH_CHECK(count * sizeof(Given) < kPage || isthmus_ascend_memory(values, count * sizeof(Given)) == 0,
              "the list of ", count, " elements at ", values, " is not memory of this process");
  return std::vector<Value>(values, values + count);
}

template <typename Object>
int destroy(const char* function, Registry<Object>& registry, const void* handle) noexcept {
  if (!handle || registry.remove(handle)) return 0;
  return isthmus_ascend_report(kInvalidParameter, function,
                               "the object does not exist; it may have been destroyed");
}

template <typename Element>
int destroy_list(const char* function, Registry<std::vector<const void*>>& lists, Registry<Element>& elements,
                 const void* handle) noexcept {
  if (!handle) return 0;
  const auto list = lists.remove(handle);
  if (!list) return destroy(function, lists, handle);
  for (const void* element : *list) elements.remove(element);
  return 0;
}

}  // namespace

Objects& objects() {
  static Objects* const objects = new Objects;
  return *objects;
}

}  // namespace isthmus::ascend

using namespace isthmus::ascend;

EXPORT aclTensor* aclCreateTensor(const int64_t* view_dims, uint64_t dim_count, int data_type,
                                  const int64_t* strides, int64_t offset, int /*format*/,
                                  const int64_t* /*storage_dims*/, uint64_t /*storage_dim_count*/,
                                  void* data) {
  return create<aclTensor>("aclCreateTensor", [&] {
    constexpr uint64_t kMostDims = 64;  // ATen's limit
    TORCH_CHECK(dim_count <= kMostDims, "there are ", dim_count, " dimensions, expected at most ", kMostDims);
    TORCH_CHECK(dim_count == 0 || (view_dims && strides), "viewDims or strides is null");
    const auto dtype = scalar_type_of(data_type);
    TORCH_CHECK(dtype, "aclDataType ", data_type, " is not supported on the host chip");
    return objects().tensors.add(
        describe({view_dims, dim_count}, {strides, dim_count}, offset, *dtype, data));
  });
}

EXPORT aclScalar* aclCreateScalar(const void* value, int data_type) {
  return create<aclScalar>("aclCreateScalar", [&] {
    TORCH_CHECK(value, "value is null");
    const auto scalar = read_scalar(value, data_type);
    TORCH_CHECK(scalar, "aclDataType ", data_type, " is not one of scalars");
    return objects().scalars.add(*scalar);
  });
}

EXPORT aclIntArray* aclCreateIntArray(const int64_t* values, uint64_t count) {
  return create<aclIntArray>("aclCreateIntArray",
                             [&] { return objects().ints.add(list<int64_t>(values, count)); });
}

EXPORT aclFloatArray* aclCreateFloatArray(const float* values, uint64_t count) {
  return create<aclFloatArray>("aclCreateFloatArray",
                               [&] { return objects().floats.add(list<float>(values, count)); });
}

EXPORT aclBoolArray* aclCreateBoolArray(const bool* values, uint64_t count) {
  return create<aclBoolArray>("aclCreateBoolArray",
                              [&] { return objects().bools.add(list<bool>(values, count)); });
}

EXPORT aclTensorList* aclCreateTensorList(aclTensor* const* elements, uint64_t count) {
  return create<aclTensorList>(
      "aclCreateTensorList", [&] { return objects().tensor_lists.add(list<const void*>(elements, count)); });
}

EXPORT aclScalarList* aclCreateScalarList(aclScalar* const* elements, uint64_t count) {
  return create<aclScalarList>(
      "aclCreateScalarList", [&] { return objects().scalar_lists.add(list<const void*>(elements, count)); });
}

EXPORT int aclDestroyTensor(const aclTensor* object) {
  return destroy("aclDestroyTensor", objects().tensors, object);
}

EXPORT int aclDestroyScalar(const aclScalar* object) {
  return destroy("aclDestroyScalar", objects().scalars, object);
}

EXPORT int aclDestroyIntArray(const aclIntArray* object) {
  return destroy("aclDestroyIntArray", objects().ints, object);
}

EXPORT int aclDestroyFloatArray(const aclFloatArray* object) {
  return destroy("aclDestroyFloatArray", objects().floats, object);
}

EXPORT int aclDestroyBoolArray(const aclBoolArray* object) {
  return destroy("aclDestroyBoolArray", objects().bools, object);
}

EXPORT int aclDestroyTensorList(const aclTensorList* object) {
  return destroy_list("aclDestroyTensorList", objects().tensor_lists, objects().tensors, object);
}

EXPORT int aclDestroyScalarList(const aclScalarList* object) {
  return destroy_list("aclDestroyScalarList", objects().scalar_lists, objects().scalars, object);
}

// The caller frees *dims with delete[].
EXPORT int aclGetViewShape(const aclTensor* object, int64_t** dims, uint64_t* count) {
  constexpr const char* kName = "aclGetViewShape";
  if (!dims || !count) return isthmus_ascend_report(kNullPointer, kName, "viewDims or count is null");
  const auto tensor = objects().tensors.get(object);
  if (!tensor)
    return isthmus_ascend_report(kInvalidParameter, kName,
                                 "the tensor does not exist; it may have been destroyed");
  const at::IntArrayRef sizes = tensor->layout.sizes_arrayref();
  *count = sizes.size();
  *dims = new int64_t[sizes.size()];
  std::copy(sizes.begin(), sizes.end(), *dims);
  return 0;
}
