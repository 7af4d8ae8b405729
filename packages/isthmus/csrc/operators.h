/* Isthmus operator interface, version 1.
 *
 * What a chip's maker implements so that an operator runs on the chip by a kernel of the maker's: functions over
 * DLPack tensors in destination-passing style. The framework allocates every output, passes the stream, the
 * scratch memory and the random seed, and a kernel computes; it needs no header of PyTorch and survives its
 * releases. A library of operators is a shared library that exports one symbol, isthmus_operators_get(), or a
 * Python module (isthmus.opset.library).
 *
 * The operators themselves, with a typed prototype for each, are in isthmus_ops.h, which is generated from the
 * opset. A kernel is called with
 *   1. the context,
 *   2. the arguments of the operator's schema in their order, without those of type ScalarType, Layout, Device,
 *      MemoryFormat and Generator and without pin_memory: the outputs and the context carry that information;
 *   3. one output for each result that is not one of the arguments.
 * An operator that writes to an argument (aten::copy_) has no output for it. In-place and out= overloads are
 * served by the kernel of their functional overload, with the written tensor as its output.
 *
 * Rules:
 *   - Tensors lie in memory of context->device, under the DLPack device that the driver declares. Their data
 *     pointer includes the offset (byte_offset is 0) and strides are never null. A tensor without elements may
 *     have a null data pointer. Tensors, outputs too, are aligned to their element only: the data pointer of a
 *     slice such as x[1:] is not a multiple of 16 bytes. The stride of a dimension of size 1 is arbitrary.
 *   - A kernel enqueues its work on context->stream. A kernel that computes in the calling thread instead has
 *     the flag ISTHMUS_OPERATOR_HOST: the stream is idle when it is called, its work is done when it returns, and its tensors
 *     and its workspace have the addresses at which the CPU reaches them (the driver's host_window).
 *   - The context, the arguments and what they point to (DLTensors, their shapes and strides, text) are valid
 *     during the call only. Work that is enqueued gets copies of what it needs.
 *   - Inputs are not written, unless the schema marks them. Outputs are written in full; their previous
 *     contents are undefined, and poisoned by the conformance suite.
 *   - Without ISTHMUS_OPERATOR_STRIDED all tensors are contiguous. Without ISTHMUS_OPERATOR_IN_PLACE no output
 *     shares memory with an input. Without ISTHMUS_OPERATOR_MIXED the tensors of an operator that promotes have
 *     one dtype (conditions and masks apart).
 *   - Indices out of range, negative ones included where PyTorch refuses them, are errors (isthmus.opset.indices
 *     lists the arguments). A kernel returns ISTHMUS_INVALID_ARGUMENT, or fails its stream, before it writes to
 *     other memory; it never wraps around, clamps or skips them. With ISTHMUS_OPERATOR_HOST the framework checks
 *     them first, so that errors are PyTorch's. The same holds for the calls that isthmus.opset.errors lists.
 *   - A list of one number per dimension (stride, padding) has its full length; only an absent one is empty.
 *   - It returns ISTHMUS_OK or a status; ISTHMUS_UNSUPPORTED passes the call to the operator's next route.
 *
 * The binary interface underneath is that of TVM-FFI: a function of type TVMFFISafeCallType whose first argument
 * is the context's address as an integer, a list is its length followed by its elements, and an absent optional
 * argument is None. Kernels built with any TVM-FFI compiler therefore fit. It returns None or a status.
 */
#ifndef ISTHMUS_OPERATORS_H_
#define ISTHMUS_OPERATORS_H_

#include <tvm/ffi/c_api.h>

#include "driver.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ISTHMUS_OPERATORS_VERSION_MAJOR 1u
#define ISTHMUS_OPERATORS_VERSION_MINOR 0u
#define ISTHMUS_OPERATORS_VERSION ((ISTHMUS_OPERATORS_VERSION_MAJOR << 16) | ISTHMUS_OPERATORS_VERSION_MINOR)

/* What a kernel gets beside its arguments. Valid during the call. */
typedef struct isthmus_context {
  uint32_t struct_size;
  int32_t device;        /* index of the device; it is current on this thread */
  isthmus_stream stream; /* null is the default stream */
  uint64_t seed;         /* of a random operator: fresh for each call, reproducible after manual_seed(); else 0 */
  /* Scratch memory of the device, aligned like the driver's allocations, usable by work enqueued on the stream by
   * this call. Null when the device is full; return ISTHMUS_OUT_OF_MEMORY then. */
  void* (*workspace)(struct isthmus_context* context, size_t bytes);
  /* Names the argument and the reason of a failing status; both are copied. */
  void (*explain)(struct isthmus_context* context, const char* argument, const char* reason);
  void* framework; /* private to the framework */
} isthmus_context;

/* A Scalar argument: a number whose type the operator interprets. */
typedef enum isthmus_scalar_kind { ISTHMUS_SCALAR_INT = 0, ISTHMUS_SCALAR_FLOAT = 1, ISTHMUS_SCALAR_BOOL = 2 }
isthmus_scalar_kind;
typedef struct isthmus_scalar {
  isthmus_scalar_kind kind;
  int64_t as_int;   /* the number, truncated if it is a float */
  double as_double; /* the number */
} isthmus_scalar;

/* Lists lie in the arguments themselves. size is -1 where an optional list is absent. */
typedef struct isthmus_list {
  int64_t size;
  const TVMFFIAny* items;
} isthmus_list;

static inline const DLTensor* isthmus_list_tensor(isthmus_list list, int64_t i) {
  return list.items[i].type_index == kTVMFFINone ? (const DLTensor*)0 : (const DLTensor*)list.items[i].v_ptr;
}
static inline int64_t isthmus_list_int(isthmus_list list, int64_t i) { return list.items[i].v_int64; }
static inline double isthmus_list_double(isthmus_list list, int64_t i) {
  return list.items[i].type_index == kTVMFFIFloat ? list.items[i].v_float64 : (double)list.items[i].v_int64;
}

/* Dtypes of a set: ISTHMUS_DTYPE(FLOAT32) | ISTHMUS_DTYPE(BFLOAT16). */
#define ISTHMUS_DTYPE(name) (1ull << ISTHMUS_##name)

#define ISTHMUS_OPERATOR_STRIDED 1u  /* takes tensors of any strides */
#define ISTHMUS_OPERATOR_IN_PLACE 2u /* outputs of the first one's shape may share the memory of inputs with that shape and strides */
#define ISTHMUS_OPERATOR_MIXED 4u    /* promotes tensors of different dtypes itself */
#define ISTHMUS_OPERATOR_HOST 8u     /* computes in the calling thread, on addresses of the CPU */

/* One operator of a library. It serves a call whose tensors, inputs and outputs, all have a dtype of the set. */
typedef struct isthmus_operator {
  const char* name;        /* overload of the opset: "aten::add.Tensor" */
  uint64_t dtypes;         /* of ISTHMUS_DTYPE() */
  uint32_t flags;          /* ISTHMUS_OPERATOR_* */
  TVMFFISafeCallType call; /* called with function as its handle */
  void* function;
} isthmus_operator;

typedef struct isthmus_operator_library {
  uint32_t struct_size;
  uint32_t version;        /* ISTHMUS_OPERATORS_VERSION that it was compiled with */
  const char* name;        /* short, unique among the libraries of a chip */
  const char* description; /* one line for people */
  uint32_t operator_size;  /* sizeof(isthmus_operator) */
  uint32_t count;
  const isthmus_operator* operators;
} isthmus_operator_library;

/* The one exported symbol. version is the caller's ISTHMUS_OPERATORS_VERSION; a library that does not
 * support its major version returns null. */
typedef const isthmus_operator_library* (*isthmus_operators_get_fn)(uint32_t version);
#define ISTHMUS_OPERATORS_SYMBOL "isthmus_operators_get"

#if defined(ISTHMUS_OPERATORS_IMPLEMENTATION)
__attribute__((visibility("default"))) const isthmus_operator_library* isthmus_operators_get(uint32_t version);
#endif

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ISTHMUS_OPERATORS_H_ */
