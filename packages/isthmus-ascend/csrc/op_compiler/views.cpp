#include "views.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "acl/enqueue.h"

namespace isthmus::ascend {
namespace {

struct View {
  char* data;
  std::vector<int64_t> sizes, strides;
  int64_t offset;
};

// Bytes of an element of an aclDataType; 0 if it has none of its own.
size_t bytes_of(int dtype) {
  switch (dtype) {
    case 2:   // int8
    case 4:   // uint8
    case 12:  // bool
      return 1;
    case 1:   // float16
    case 6:   // int16
    case 7:   // uint16
    case 27:  // bfloat16
      return 2;
    case 0:  // float32
    case 3:  // int32
    case 8:  // uint32
      return 4;
    case 9:   // int64
    case 10:  // uint64
    case 11:  // float64
    case 16:  // complex64
      return 8;
    case 17:  // complex128
      return 16;
    default:
      return 0;
  }
}

// Integers on the host; -1, which nothing takes, if they are not there.
std::vector<int64_t> numbers(const void* buffer) {
  constexpr size_t kMost = 64;
  const void* const data = aclGetDataBufferAddr(buffer);
  std::vector<int64_t> values(std::min(aclGetDataBufferSizeV2(buffer) / sizeof(int64_t), kMost + 1));
  const size_t bytes = values.size() * sizeof(int64_t);
  if (values.size() > kMost || isthmus_ascend_memory(data, bytes) != 0) return {-1};
  if (!values.empty()) std::memcpy(values.data(), data, bytes);
  return values;
}

// A view of four buffers: memory, sizes, strides and offset.
View view_of(const void* const buffers[]) {
  const std::vector<int64_t> offset = numbers(buffers[3]);
  return {static_cast<char*>(aclGetDataBufferAddr(buffers[0])), numbers(buffers[1]), numbers(buffers[2]),
          offset.size() == 1 ? offset[0] : -1};
}

View contiguous(void* data, const std::vector<int64_t>& sizes) {
  View view{static_cast<char*>(data), sizes, sizes, 0};
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0; stride *= sizes[i]) view.strides[i] = stride;
  return view;
}

bool is_empty(const View& view) {
  for (const int64_t size : view.sizes)
    if (size == 0) return true;
  return false;
}

// Elements from the first of a view that is not empty to its last, with both; 0 if it is none or they are too
// many.
int64_t span(const View& view) {
  if (view.offset < 0 || view.sizes.size() != view.strides.size()) return 0;
  int64_t count = 1;
  for (size_t i = 0; i < view.sizes.size(); ++i) {
    int64_t reach = 0;
    if (view.sizes[i] < 0 || view.strides[i] < 0 ||
        __builtin_mul_overflow(view.sizes[i] - 1, view.strides[i], &reach) ||
        __builtin_add_overflow(count, reach, &count))
      return 0;
  }
  return count;
}

bool in_memory(const View& view, size_t bytes) {
  int64_t end = 0;
  return span(view) != 0 && !__builtin_add_overflow(span(view), view.offset, &end) &&
         !__builtin_mul_overflow(end, static_cast<int64_t>(bytes), &end) &&
         isthmus_ascend_memory(view.data, static_cast<size_t>(end)) == 0;
}

// Whether a view has more elements than places, to which a copy would write without end.
bool overlaps(const View& view) {
  int64_t elements = 1;
  for (const int64_t size : view.sizes)
    if (__builtin_mul_overflow(elements, size, &elements)) return true;
  return elements > span(view);
}

struct Copy {
  View from, to;
  size_t bytes;  // size of an element

  void run(size_t dimension, int64_t source, int64_t target) const {
    if (dimension == from.sizes.size()) {
      std::memcpy(to.data + target * static_cast<int64_t>(bytes),
                  from.data + source * static_cast<int64_t>(bytes), bytes);
      return;
    }
    for (int64_t i = 0; i < from.sizes[dimension]; ++i)
      run(dimension + 1, source + i * from.strides[dimension], target + i * to.strides[dimension]);
  }
};

int enqueue(const OlderCall& call, View from, View to) {
  const size_t bytes = bytes_of(aclGetTensorDescType(call.output_descriptions[0]));
  if (is_empty(from)) return kSuccess;
  if (bytes == 0 || from.sizes != to.sizes || !in_memory(from, bytes) || !in_memory(to, bytes) ||
      overlaps(to))
    return isthmus_ascend_report(
        kInvalidParameter, call.function,
        "the views to copy differ in size or leave the memory, or the target overlaps itself");
  const auto run = [](void* data) {
    const Copy& copy = *static_cast<Copy*>(data);
    copy.run(0, copy.from.offset, copy.to.offset);
  };
  const auto destroy = [](void* data) { delete static_cast<Copy*>(data); };
  return isthmus_ascend_enqueue(call.stream, run, destroy, new Copy{std::move(from), std::move(to), bytes});
}

}  // namespace

int as_strided(const OlderCall& call) {
  View from = view_of(call.input);
  View to = contiguous(aclGetDataBufferAddr(call.output[0]), from.sizes);
  return enqueue(call, std::move(from), std::move(to));
}

int transpose(const OlderCall& call) {
  std::vector<int64_t> sizes(aclGetTensorDescNumDims(call.input_descriptions[0]));
  for (size_t i = 0; i < sizes.size(); ++i) aclGetTensorDescDimV2(call.input_descriptions[0], i, &sizes[i]);
  const View whole = contiguous(aclGetDataBufferAddr(call.input[0]), sizes);
  View from{whole.data, {}, {}, 0};
  for (const int64_t dimension : numbers(call.input[1])) {
    if (dimension < 0 || static_cast<size_t>(dimension) >= sizes.size())
      return isthmus_ascend_report(kInvalidParameter, call.function,
                                   "Transpose: a dimension is out of range");
    from.sizes.push_back(whole.sizes[static_cast<size_t>(dimension)]);
    from.strides.push_back(whole.strides[static_cast<size_t>(dimension)]);
  }
  View to = contiguous(aclGetDataBufferAddr(call.output[0]), from.sizes);
  return enqueue(call, std::move(from), std::move(to));
}

int view_copy(const OlderCall& call) { return enqueue(call, view_of(call.input + 4), view_of(call.input)); }

}  // namespace isthmus::ascend
