/* Opens drivers and operator libraries. Each is checked completely before use, and errors are reported in one
 * line. Independent of PyTorch: the core includes these sources, and Python code without PyTorch calls them
 * in libisthmus_loader.so.
 */
#ifndef ISTHMUS_LOADER_H_
#define ISTHMUS_LOADER_H_

#include "driver.h"
#include "operators.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(ISTHMUS_LOADER_LIBRARY)
#define ISTHMUS_LOADER_API __attribute__((visibility("default")))
#else
#define ISTHMUS_LOADER_API
#endif

/* Opens the driver at path and copies its table, which then has this interface's size: functions of a newer
 * interface are omitted, those that an older driver lacks are null. Does not initialise the driver.
 * name: replaces the driver's own unless empty; it must outlive the table.
 * delegate: "" keeps the driver's declaration, "none" and "cpu" restrict it.
 * Returns 0, or -1 with one line in error: path, what is wrong, remedy. */
ISTHMUS_LOADER_API int isthmus_open_driver(const char* path, const char* name, const char* delegate,
                                           isthmus_driver* table, char* error, size_t error_bytes);

/* Opens the operator library at path. Its operators are isthmus_operator_at(): a library that was compiled
 * with a newer interface has larger ones. Returns 0, or -1 with one line in error. */
ISTHMUS_LOADER_API int isthmus_open_operators(const char* path, const isthmus_operator_library** library,
                                              char* error, size_t error_bytes);

static inline const isthmus_operator* isthmus_operator_at(const isthmus_operator_library* library,
                                                          uint32_t i) {
  return (const isthmus_operator*)((const char*)library->operators + (size_t)i * library->operator_size);
}

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ISTHMUS_LOADER_H_ */
