#include "ascend/opapi/objects.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace isthmus::ascend {

// Numbers of aclDataType.
std::optional<at::ScalarType> scalar_type(int acl_data_type) {
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
  int64_t last = offset;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return 0;
    last += (sizes[i] - 1) * strides[i];
  }
  return static_cast<size_t>(last + 1) * item;
}

}  // namespace
}  // namespace isthmus::ascend

using isthmus::ascend::scalar_type;

EXPORT aclTensor* aclCreateTensor(const int64_t* view_dims, uint64_t dim_count, int data_type,
                                  const int64_t* strides, int64_t offset, int /*format*/,
                                  const int64_t* /*storage_dims*/, uint64_t /*storage_dim_count*/,
                                  void* data) {
  const auto dtype = scalar_type(data_type);
  if (!dtype || (dim_count && (!view_dims || !strides))) return nullptr;
  const at::IntArrayRef sizes(view_dims, dim_count);
  if (std::any_of(sizes.begin(), sizes.end(), [](int64_t size) { return size < 0; })) return nullptr;
  const at::IntArrayRef steps(strides, dim_count);
  const caffe2::TypeMeta meta = c10::scalarTypeToTypeMeta(*dtype);
  const size_t bytes = isthmus::ascend::span(sizes, steps, offset, meta.itemsize());
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, c10::DataPtr(data, c10::kCPU), nullptr, false);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage),
                                                         c10::DispatchKeySet(c10::DispatchKey::CPU), meta);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, steps, offset);
  return new aclTensor{std::move(tensor)};
}

EXPORT aclScalar* aclCreateScalar(const void* value, int data_type) {
  const auto scalar = value ? isthmus::ascend::read_scalar(value, data_type) : std::nullopt;
  return scalar ? new aclScalar{*scalar} : nullptr;
}

EXPORT aclIntArray* aclCreateIntArray(const int64_t* values, uint64_t count) {
  return count && !values ? nullptr : new aclIntArray{std::vector<int64_t>(values, values + count)};
}

EXPORT aclFloatArray* aclCreateFloatArray(const float* values, uint64_t count) {
  return count && !values ? nullptr : new aclFloatArray{std::vector<float>(values, values + count)};
}

EXPORT aclBoolArray* aclCreateBoolArray(const bool* values, uint64_t count) {
  return count && !values ? nullptr : new aclBoolArray{std::vector<bool>(values, values + count)};
}

EXPORT aclTensorList* aclCreateTensorList(aclTensor* const* elements, uint64_t count) {
  return count && !elements ? nullptr : new aclTensorList{{elements, elements + count}};
}

EXPORT aclScalarList* aclCreateScalarList(aclScalar* const* elements, uint64_t count) {
  return count && !elements ? nullptr : new aclScalarList{{elements, elements + count}};
}

EXPORT int aclDestroyTensor(const aclTensor* object) { return delete object, 0; }
EXPORT int aclDestroyScalar(const aclScalar* object) { return delete object, 0; }
EXPORT int aclDestroyIntArray(const aclIntArray* object) { return delete object, 0; }
EXPORT int aclDestroyFloatArray(const aclFloatArray* object) { return delete object, 0; }
EXPORT int aclDestroyBoolArray(const aclBoolArray* object) { return delete object, 0; }

EXPORT int aclDestroyTensorList(const aclTensorList* object) {
  if (object)
    for (const aclTensor* element : object->elements) delete element;
  return delete object, 0;
}

EXPORT int aclDestroyScalarList(const aclScalarList* object) {
  if (object)
    for (const aclScalar* element : object->elements) delete element;
  return delete object, 0;
}

// The caller frees *dims with delete[].
EXPORT int aclGetViewShape(const aclTensor* object, int64_t** dims, uint64_t* count) {
  if (!object || !dims || !count) return 161001;
  const at::IntArrayRef sizes = object->tensor.sizes();
  *count = sizes.size();
  *dims = new int64_t[sizes.size()];
  std::copy(sizes.begin(), sizes.end(), *dims);
  return 0;
}
