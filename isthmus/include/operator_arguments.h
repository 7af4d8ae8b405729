/* How the flat arguments of a call become the typed ones of a kernel; what the unpackers of isthmus_ops.h
 * share.
 *
 * Reading never stops half-way: the first argument that is wrong is remembered, the rest read as absent, and
 * isthmus_arguments_ready() says whether the kernel may be called.
 */
#ifndef ISTHMUS_OPERATOR_ARGUMENTS_H_
#define ISTHMUS_OPERATOR_ARGUMENTS_H_

#include <stdbool.h>
#include <string.h>

#include "operators.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct isthmus_arguments {
  const TVMFFIAny* next;
  const TVMFFIAny* end;
  isthmus_context* context;
  const char* wrong;  /* first argument that could not be read, or null */
  const char* reason; /* why */
} isthmus_arguments;

static inline void isthmus_arguments_refuse(isthmus_arguments* a, const char* name, const char* reason) {
  if (a->wrong) return;
  a->wrong = name;
  a->reason = reason;
}

static inline isthmus_arguments isthmus_arguments_of(const TVMFFIAny* items, int32_t count) {
  isthmus_arguments a;
  memset(&a, 0, sizeof(a));
  if (count < 1 || items[0].type_index != kTVMFFIInt || items[0].v_int64 == 0) {
    isthmus_arguments_refuse(&a, "context", "is not an address");
    return a;
  }
  a.context = (isthmus_context*)(uintptr_t)items[0].v_int64;
  a.next = items + 1;
  a.end = items + count;
  return a;
}

/* The next argument, or null where there is none. */
static inline const TVMFFIAny* isthmus_next(isthmus_arguments* a, const char* name) {
  if (a->next != a->end) return a->next++;
  isthmus_arguments_refuse(a, name, "is missing");
  return (const TVMFFIAny*)0;
}

static inline bool isthmus_is_number(const TVMFFIAny* item) {
  return item->type_index == kTVMFFIInt || item->type_index == kTVMFFIBool ||
         item->type_index == kTVMFFIFloat;
}

/* Whether an optional argument is there; it is not consumed. */
static inline bool isthmus_present(isthmus_arguments* a) {
  if (a->next == a->end || a->next->type_index != kTVMFFINone) return true;
  ++a->next;
  return false;
}

static inline DLTensor* isthmus_take_optional_tensor(isthmus_arguments* a, const char* name) {
  const TVMFFIAny* item = isthmus_next(a, name);
  if (!item || item->type_index == kTVMFFINone) return (DLTensor*)0;
  if (item->type_index == kTVMFFIDLTensorPtr) return (DLTensor*)item->v_ptr;
  if (item->type_index == kTVMFFITensor) return (DLTensor*)((char*)item->v_ptr + sizeof(TVMFFIObject));
  isthmus_arguments_refuse(a, name, "is not a tensor");
  return (DLTensor*)0;
}

static inline DLTensor* isthmus_take_tensor(isthmus_arguments* a, const char* name) {
  DLTensor* tensor = isthmus_take_optional_tensor(a, name);
  if (!tensor) isthmus_arguments_refuse(a, name, "is absent; a tensor is needed");
  return tensor;
}

static inline isthmus_scalar isthmus_take_scalar(isthmus_arguments* a, const char* name) {
  const TVMFFIAny* item = isthmus_next(a, name);
  isthmus_scalar scalar;
  memset(&scalar, 0, sizeof(scalar));
  if (!item) return scalar;
  if (!isthmus_is_number(item)) {
    isthmus_arguments_refuse(a, name, "is not a number");
    return scalar;
  }
  if (item->type_index == kTVMFFIFloat) {
    const double value = item->v_float64;
    scalar.kind = ISTHMUS_SCALAR_FLOAT;
    scalar.as_double = value;
    /* The conversion of a number that int64_t does not hold is undefined. */
    scalar.as_int = value > -9.2233720368547748e18 && value < 9.2233720368547748e18 ? (int64_t)value : 0;
    return scalar;
  }
  scalar.kind = item->type_index == kTVMFFIBool ? ISTHMUS_SCALAR_BOOL : ISTHMUS_SCALAR_INT;
  scalar.as_int = item->v_int64;
  scalar.as_double = (double)item->v_int64;
  return scalar;
}

static inline int64_t isthmus_take_int(isthmus_arguments* a, const char* name) {
  const TVMFFIAny* item = isthmus_next(a, name);
  if (!item) return 0;
  if (item->type_index == kTVMFFIInt || item->type_index == kTVMFFIBool) return item->v_int64;
  isthmus_arguments_refuse(a, name, "is not an integer");
  return 0;
}

static inline double isthmus_take_float(isthmus_arguments* a, const char* name) {
  return isthmus_take_scalar(a, name).as_double;
}

static inline bool isthmus_take_bool(isthmus_arguments* a, const char* name) {
  return isthmus_take_int(a, name) != 0;
}

/* A text that ends with a null character; short ones lie in the argument itself. */
static inline const char* isthmus_take_str(isthmus_arguments* a, const char* name) {
  const TVMFFIAny* item = isthmus_next(a, name);
  if (!item) return "";
  if (item->type_index == kTVMFFIRawStr) return item->v_c_str;
  if (item->type_index == kTVMFFISmallStr) return item->v_bytes;
  if (item->type_index == kTVMFFIStr)
    return ((const TVMFFIByteArray*)((const char*)item->v_ptr + sizeof(TVMFFIObject)))->data;
  isthmus_arguments_refuse(a, name, "is not a string");
  return "";
}

static inline isthmus_list isthmus_take_optional_list(isthmus_arguments* a, const char* name) {
  isthmus_list list = {-1, (const TVMFFIAny*)0};
  if (!isthmus_present(a)) return list;
  list.size = isthmus_take_int(a, name);
  if (list.size < 0 || list.size > a->end - a->next) {
    isthmus_arguments_refuse(a, name, "is a list longer than the call");
    list.size = 0;
  }
  list.items = a->next;
  a->next += list.size;
  return list;
}

static inline isthmus_list isthmus_take_list(isthmus_arguments* a, const char* name) {
  isthmus_list list = isthmus_take_optional_list(a, name);
  if (list.size < 0) isthmus_arguments_refuse(a, name, "is absent; a list is needed");
  return list;
}

/* A tensor of a list that the operator writes. */
static inline DLTensor* isthmus_list_output(isthmus_list list, int64_t i) {
  return list.items[i].type_index == kTVMFFINone ? (DLTensor*)0 : (DLTensor*)list.items[i].v_ptr;
}

/* Whether all arguments were read, none is left over, and there is a kernel to call. */
static inline bool isthmus_arguments_ready(isthmus_arguments* a, const void* function) {
  if (!function) isthmus_arguments_refuse(a, "", "the library has a null function for it");
  if (a->next != a->end) isthmus_arguments_refuse(a, "", "more arguments than the schema has");
  return !a->wrong;
}

/* Hands the status of a call to the framework. */
static inline int isthmus_arguments_end(const isthmus_arguments* a, TVMFFIAny* result,
                                        isthmus_status status) {
  if (a->wrong && a->context) a->context->explain(a->context, a->wrong, a->reason);
  result->type_index = kTVMFFIInt;
  result->zero_padding = 0;
  result->v_int64 = (int64_t)status;
  return 0;
}

/* A kernel travels as a data pointer: the conversions, and the check that it has its operator's prototype. */
#ifdef __cplusplus
#define ISTHMUS_KERNEL_OF(type, pointer) (reinterpret_cast<type>(pointer))
#define ISTHMUS_KERNEL(type, kernel) (reinterpret_cast<void*>(static_cast<type>(kernel)))
#else
#define ISTHMUS_KERNEL_OF(type, pointer) (__extension__(type)(pointer))
#define ISTHMUS_KERNEL(type, kernel) (__extension__(void*) _Generic((kernel), type: (kernel)))
#endif

/* One line of a library's table: ISTHMUS_OPERATOR(aten_add_Tensor, my_add, ISTHMUS_DTYPE(FLOAT32), flags). A
 * kernel whose prototype is not that of the operator does not compile. */
#define ISTHMUS_OPERATOR(id, kernel, dtypes, flags) \
  {ISTHMUS_NAME_##id, (dtypes), (flags), isthmus_call_##id, ISTHMUS_KERNEL(isthmus_##id##_fn, kernel)}

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ISTHMUS_OPERATOR_ARGUMENTS_H_ */
