#include "opapi/exchange.h"

#include <ATen/core/Tensor.h>
#include <dlfcn.h>

extern "C" int aclrtMalloc(void** pointer, size_t bytes, int policy);
extern "C" int aclrtFree(void* pointer);

namespace isthmus::ascend {
namespace {

// A function of libhccl.so, which the path of this library finds.
template <typename Function>
Function* hccl(const char* name) {
  static void* const library = dlopen("libhccl.so", RTLD_NOW | RTLD_LOCAL);
  void* const found = library ? dlsym(library, name) : nullptr;
  TORCH_CHECK(found, "libhccl.so has no ", name, "; libopapi.so looks for it in ../lib64");
  return reinterpret_cast<Function*>(found);
}

Ranks ranks_of(const std::string& group) {
  Ranks ranks;
  const auto find = hccl<int(const char*, void**, int64_t*, int64_t*)>("isthmus_ascend_comm");
  TORCH_CHECK(find(group.c_str(), &ranks.comm, &ranks.size, &ranks.rank) == 0, "group is ", group,
              ", which names no communicator of this device");
  return ranks;
}

// Zeros in memory of the device, where collectives read and write.
at::Tensor device_zeros(at::IntArrayRef sizes, at::ScalarType dtype) {
  const size_t bytes = c10::multiply_integers(sizes) * c10::elementSize(dtype);
  void* pointer = nullptr;
  TORCH_CHECK(aclrtMalloc(&pointer, std::max<size_t>(bytes, 1), 0) == 0, "the device has no ", bytes,
              " bytes left for an exchange");
  c10::DataPtr data(pointer, pointer, [](void* memory) { aclrtFree(memory); }, c10::kCPU);
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, std::move(data), nullptr, false);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return tensor.zero_();
}

// The HcclDataType.
int hccl_data_type(at::ScalarType dtype) {
  switch (dtype) {
    case at::kChar:
      return 0;
    case at::kInt:
      return 2;
    case at::kHalf:
      return 3;
    case at::kFloat:
      return 4;
    case at::kLong:
      return 5;
    case at::kDouble:
      return 10;
    case at::kBFloat16:
      return 11;
    default:
      TORCH_CHECK(false, "dtype ", dtype, " cannot be sent to other ranks");
  }
}

// Rows for each rank, from rows for each expert of each.
std::vector<uint64_t> by_rank(const std::vector<int64_t>& counts, int64_t ranks) {
  TORCH_CHECK(!counts.empty() && counts.size() % ranks == 0, "a list of counts has ", counts.size(),
              " elements, expected a multiple of ", ranks);
  std::vector<uint64_t> sums(ranks, 0);
  for (size_t i = 0; i < counts.size(); ++i) {
    TORCH_CHECK(counts[i] >= 0, "a count is ", counts[i], ", expected at least 0");
    sums[i / (counts.size() / ranks)] += counts[i];
  }
  return sums;
}

uint64_t total(const std::vector<uint64_t>& counts) {
  uint64_t sum = 0;
  for (const uint64_t count : counts) sum += count;
  return sum;
}

// Counts and offsets of the parts, in elements of rows.
std::pair<std::vector<uint64_t>, std::vector<uint64_t>> parts(const std::vector<uint64_t>& rows,
                                                              uint64_t columns) {
  std::vector<uint64_t> counts, starts;
  uint64_t at = 0;
  for (const uint64_t count : rows) {
    counts.push_back(count * columns);
    starts.push_back(at);
    at += count * columns;
  }
  return {counts, starts};
}

}  // namespace

const Fused* find_fused(const std::string& name) {
  for (const Fused& fused : fused_functions())
    if (name == fused.name) return &fused;
  return nullptr;
}

Transfer prepare_transfer(const Fused& fused, const Call& call) {
  Transfer transfer;
  transfer.fused = &fused;
  transfer.ranks = ranks_of(call.text("group"));
  const at::Tensor local = fused.before(call, transfer.ranks);
  hccl_data_type(local.scalar_type());
  transfer.sent = device_zeros(local.sizes(), local.scalar_type());
  auto sizes = transfer.sent.sizes().vec();
  TORCH_CHECK(!sizes.empty(), "a scalar cannot be sent to other ranks");
  const int64_t ranks = transfer.ranks.size;
  if (fused.exchange == Exchange::kAllGather) sizes[0] *= ranks;
  if (fused.exchange == Exchange::kReduceScatter || fused.exchange == Exchange::kAllToAll)
    TORCH_CHECK(sizes[0] % ranks == 0, "there are ", sizes[0], " rows to send, expected a multiple of the ",
                ranks, " ranks");
  if (fused.exchange == Exchange::kReduceScatter) sizes[0] /= ranks;
  if (fused.exchange == Exchange::kAllToAllV) {
    transfer.send_counts = by_rank(call.ints("send_counts"), ranks);
    transfer.receive_counts = by_rank(call.ints("recv_counts"), ranks);
    TORCH_CHECK(static_cast<uint64_t>(sizes[0]) == total(transfer.send_counts), "sendCounts is for ",
                total(transfer.send_counts), " rows, expected ", sizes[0]);
    sizes[0] = total(transfer.receive_counts);
  }
  transfer.received = device_zeros(sizes, transfer.sent.scalar_type());
  return transfer;
}

void before(Transfer& transfer, const Call& call) {
  transfer.sent.copy_(transfer.fused->before(call, transfer.ranks));
}

void after(const Transfer& transfer, const Call& call) {
  transfer.fused->after(call, transfer.received, transfer.ranks);
}

int start(const Transfer& t, void* stream) {
  constexpr int kSum = 0;
  void *from = t.sent.data_ptr(), *to = t.received.data_ptr(), *comm = t.ranks.comm;
  const int dtype = hccl_data_type(t.sent.scalar_type());
  const uint64_t count = t.sent.numel(), part = count / t.ranks.size;
  switch (t.fused->exchange) {
    case Exchange::kAllReduce:
      return hccl<int(void*, void*, uint64_t, int, int, void*, void*)>("HcclAllReduce")(
          from, to, count, dtype, kSum, comm, stream);
    case Exchange::kReduceScatter:
      return hccl<int(void*, void*, uint64_t, int, int, void*, void*)>("HcclReduceScatter")(
          from, to, part, dtype, kSum, comm, stream);
    case Exchange::kAllGather:
      return hccl<int(void*, void*, uint64_t, int, void*, void*)>("HcclAllGather")(from, to, count, dtype,
                                                                                   comm, stream);
    case Exchange::kAllToAll:
      return hccl<int(const void*, uint64_t, int, void*, uint64_t, int, void*, void*)>("HcclAlltoAll")(
          from, part, dtype, to, part, dtype, comm, stream);
    case Exchange::kAllToAllV:
      break;
  }
  const uint64_t columns = t.sent.size(0)       ? count / t.sent.size(0)
                           : t.received.size(0) ? t.received.numel() / t.received.size(0)
                                                : 0;
  const auto [sizes, starts] = parts(t.send_counts, columns);
  const auto [to_sizes, to_starts] = parts(t.receive_counts, columns);
  return hccl<int(const void*, const uint64_t*, const uint64_t*, int, void*, const uint64_t*, const uint64_t*,
                  int, void*, void*)>("HcclAlltoAllV")(
      from, sizes.data(), starts.data(), dtype, to, to_sizes.data(), to_starts.data(), dtype, comm, stream);
}

}  // namespace isthmus::ascend
