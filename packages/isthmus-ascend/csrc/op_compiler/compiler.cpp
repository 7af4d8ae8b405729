// libacl_op_compiler.so: the older interface of operators. Compilation at run time is off, so that
// applications take the aclnn functions. Of the older interface there are Identity, with which torch_npu
// changes between formats of the same order in memory, AsStrided, ViewCopy and Transpose, and those that
// libopapi.so computes; others are refused by name.
#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "acl/enqueue.h"
#include "driver.h"
#include "status.h"
#include "views.h"

#define ISTHMUS_ASCEND_EXPORT extern "C" __attribute__((visibility("default")))

using namespace isthmus::ascend;

namespace {

constexpr char kOff[] = "disable";

int refuse(const char* function, const char* operator_name) {
  isthmus_ascend_count(operator_name != nullptr ? operator_name : "(null)", kMissingCall,
                       "an operator of the older interface");
  char message[256];
  std::snprintf(message, sizeof(message), "operator %s of the older interface is not implemented",
                operator_name != nullptr ? operator_name : "(null)");
  return isthmus_ascend_report(kUnsupported, function, message);
}

// Every format keeps its elements first, in the order of dimensions; some have padding after them.
int identity(const OlderCall& call) {
  const void *const input = call.input[0], *const output = call.output[0];
  const size_t bytes = std::min(aclGetDataBufferSizeV2(input), aclGetDataBufferSizeV2(output));
  if (bytes == 0) return kSuccess;
  isthmus_stream queue = nullptr;
  int device = 0;
  if (const int code = isthmus_ascend_queue(call.stream, &queue, &device)) return code;
  const isthmus_driver& chip = *isthmus_ascend_chip();
  const isthmus_status status = chip.copy_async(aclGetDataBufferAddr(output), aclGetDataBufferAddr(input),
                                                bytes, ISTHMUS_DEVICE_TO_DEVICE, queue);
  return status == ISTHMUS_OK ? kSuccess
                              : isthmus_ascend_report(kInvalidParameter, call.function, chip.last_error());
}

struct Operator {
  const char* name;
  int inputs;
  int (*run)(const OlderCall&);
};

constexpr Operator kOperators[] = {{"Identity", 1, identity},
                                   {"AsStrided", 4, as_strided},
                                   {"ViewCopy", 8, view_copy},
                                   {"Transpose", 2, transpose}};

// Null without PyTorch, which libopapi.so needs.
ComputeOlder compute() {
  static void* const library = dlopen("libopapi.so", RTLD_NOW | RTLD_LOCAL);
  static void* const found = library == nullptr ? nullptr : dlsym(library, "isthmus_ascend_compute_older");
  return reinterpret_cast<ComputeOlder>(found);
}

int execute(const char* name, const OlderCall& call) {
  const bool no_input = call.input_descriptions == nullptr || call.input == nullptr,
             no_output = call.output_descriptions == nullptr || call.output == nullptr;
  if ((call.inputs > 0 && no_input) || (call.outputs > 0 && no_output))
    return isthmus_ascend_report(kInvalidParameter, call.function, "a list is null; pass a valid pointer");
  if (call.inputs < 0 || call.outputs < 0)
    return isthmus_ascend_report(kInvalidParameter, call.function, "the length of a list is negative");
  if (name == nullptr) return refuse(call.function, name);
  for (const Operator& each : kOperators)
    if (std::strcmp(name, each.name) == 0 && call.inputs == each.inputs && call.outputs == 1)
      return each.run(call);
  int status = kUnsupported;
  if (compute() != nullptr && compute()(name, call, &status)) return status;  // counts the call
  return refuse(call.function, name);
}

}  // namespace

ISTHMUS_ASCEND_EXPORT int aclSetCompileopt(int, const char*) { return kSuccess; }

ISTHMUS_ASCEND_EXPORT size_t aclGetCompileoptSize(int) { return sizeof(kOff); }

ISTHMUS_ASCEND_EXPORT int aclGetCompileopt(int, char* value, size_t room) {
  if (value == nullptr || room < sizeof(kOff))
    return isthmus_ascend_report(kInvalidParameter, "aclGetCompileopt", "the value needs a larger buffer");
  std::memcpy(value, kOff, sizeof(kOff));
  return kSuccess;
}

ISTHMUS_ASCEND_EXPORT int aclopCompileAndExecute(const char* name, int inputs,
                                                 const void* const input_descriptions[],
                                                 const void* const input[], int outputs,
                                                 const void* const output_descriptions[],
                                                 void* const output[], const void* attributes, int, int,
                                                 const char*, void* stream) {
  return isthmus_ascend_defer(
      stream, execute(name, {"aclopCompileAndExecute", input_descriptions, input, output_descriptions, output,
                             stream, inputs, outputs, attributes}));
}

ISTHMUS_ASCEND_EXPORT int aclopCompileAndExecuteV2(const char* name, int inputs,
                                                   void* const input_descriptions[], void* const input[],
                                                   int outputs, void* const output_descriptions[],
                                                   void* const output[], void* attributes, int, int,
                                                   const char*, void* stream) {
  return execute(name, {"aclopCompileAndExecuteV2", input_descriptions, input, output_descriptions, output,
                        stream, inputs, outputs, attributes});
}

ISTHMUS_ASCEND_EXPORT int aclopStartDumpArgs(uint32_t, const char*) { return kSuccess; }
ISTHMUS_ASCEND_EXPORT int aclopStopDumpArgs(uint32_t) { return kSuccess; }
