// Communicators, and the numbers of libhccl.so's interface.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>

#include "acl/enqueue.h"
#include "driver.h"

#define ISTHMUS_ASCEND_EXPORT extern "C" __attribute__((visibility("default")))

namespace isthmus::ascend::hccl {

// Values of HcclResult.
enum Result : int {
  kSuccess = 0,
  kInvalidParameter = 1,
  kNullPointer = 2,
  kInternal = 4,
  kUnsupported = 5,
  kTimeout = 9,
  kLinkDown = 13,  // failed transfer by RoCE
  kRemoteFailure = 21,
  kOutOfMemory = 24,
};

struct Failure {
  int code;  // an HcclResult
  std::string message;
};

struct Comm {
  isthmus_comm comm;
  int32_t rank, size, device;
  std::string name;                      // the same on all ranks
  std::atomic<bool> is_used{false};      // whether an operation of this rank uses it
  std::atomic<bool> is_reported{false};  // its failure, by a call that waited for the device
};

// Waits for the other ranks; returns the handle. Throws Failure.
void* create(const isthmus_unique_id& id, uint32_t size, uint32_t rank);

// A name made of a hash of the bytes.
std::string name_of(std::string_view bytes);

// An environment variable in seconds, as milliseconds. Throws Failure if it is no number.
int64_t milliseconds_of(const char* variable, int64_t seconds_if_unset);

// The host chip. Throws Failure.
const isthmus_driver& chip();

// Throws the driver's last error unless the status is ISTHMUS_OK.
void check(isthmus_status status);
int code_of(isthmus_status status) noexcept;

// Throws Failure if the pointer is null.
void require_not_null(const void* pointer, const char* argument);

// Throws Failure if it does not exist.
std::shared_ptr<Comm> comm_of(const void* handle);

// The same, for an operation.
std::shared_ptr<Comm> used_comm(const void* handle);

// The driver's number; throws Failure if there is none.
isthmus_dtype dtype_of(int dtype);
isthmus_reduce_op reduction_of(int operation);
size_t bytes_of(int dtype);

// The driver's stream of an aclrtStream. Throws Failure.
isthmus_stream queue_of(void* stream);

// Runs the body of an exported function; its failure is the message of aclGetRecentErrMsg() too.
template <typename Body>
int call(const char* function, Body&& body) noexcept {
  if (isthmus_ascend_fault(function) != 0) return kLinkDown;
  try {
    body();
    return kSuccess;
  } catch (const Failure& failure) {
    return isthmus_ascend_report(failure.code, function, failure.message.c_str());
  } catch (const std::exception& error) {
    return isthmus_ascend_report(kInternal, function, error.what());
  }
}

}  // namespace isthmus::ascend::hccl
