/* Opens what a chip's maker supplies: a driver, and libraries of operators. Each is checked whole before it
 * is used, and what is wrong with it is said in one line. Free of PyTorch: the core compiles these sources
 * into itself, and Python code that runs where PyTorch is not installed calls them in libisthmus_loader.so.
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

/* Opens the driver at path and copies its table, which then has this interface's size: a function of a newer
 * interface is left out, one that an older driver lacks is null. Does not initialise the driver.
 * name: takes the place of the driver's own unless it is empty; it must outlive the table.
 * delegate: "" leaves what the driver declares, "none" and "cpu" narrow it.
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
