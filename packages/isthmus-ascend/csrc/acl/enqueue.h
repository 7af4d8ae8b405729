/* What libascendcl.so offers to the other libraries of the reference runtime. */
#ifndef ISTHMUS_ASCEND_ENQUEUE_H_
#define ISTHMUS_ASCEND_ENQUEUE_H_

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct isthmus_driver;
struct isthmus_stream_t;

/* Runs function(data) on the stream's thread after the work enqueued so far, and returns at once. The
 * function may read and write device memory; it must not call an acl function that waits for a stream, and
 * must not throw. Of a captured stream it runs at each execution of the model.
 *
 * stream: an aclrtStream, or null for the default stream of the calling thread's device.
 * destroy: called with data when it is needed no more, on any thread, even if the call fails.
 * Returns 0, or an aclError, with its message in aclGetRecentErrMsg(). */
int isthmus_ascend_enqueue(void* stream, void (*function)(void*), void (*destroy)(void*), void* data);

/* For a function that isthmus_ascend_enqueue() runs: it failed. The next call that waits for its device
 * returns aclError 507015, with the message in aclGetRecentErrMsg(). */
void isthmus_ascend_fail(const char* function, const char* message);

/* Sets a function that is called by whatever waits for a device, after its work: the message of a failure
 * that no stream has, valid until the thread's next call, or null. The waiting call returns aclError 507000
 * with it. */
void isthmus_ascend_set_watch(const char* (*failure_of)(int device));

/* Whether the calling thread executes torch_npu's task queue. That thread ends at the first error of a task,
 * and torch_npu drops all later tasks without an error: their outputs keep what the memory held. */
bool isthmus_ascend_in_task_queue(void);

/* ISTHMUS_ASCEND_STRICT: refuse what a card refuses, and let an error of torch_npu's task queue end it. */
bool isthmus_ascend_strict(void);

/* Outcomes of a call of an operator: it ran; it was refused; it ran though a card refuses it; it is not
 * implemented. */
enum isthmus_ascend_outcome { kCall, kRefusedCall, kAcceptedCall, kMissingCall };

/* Whether ISTHMUS_ASCEND_REPORT is set; the call is counted there, with its call site in Python. */
bool isthmus_ascend_reports(void);
void isthmus_ascend_count(const char* function, enum isthmus_ascend_outcome outcome, const char* message);

/* The number of the product's series in ascend_products.h. */
int isthmus_ascend_series(void);

/* Ends a call that enqueues an operator: returns code, or, in torch_npu's task queue of a process that is not
 * strict, 0. The thread's last
 * error then becomes one of the stream, where the operator would have run: the next call that waits for the
 * device returns aclError 507015 with its message. (torch_npu only warns of an unsupported feature, 207000.)
 */
int isthmus_ascend_defer(void* stream, int code);

/* Keeps a message for aclGetRecentErrMsg() of this thread and returns code. */
int isthmus_ascend_report(int code, const char* function, const char* message);

/* Called by every function of the interface first: 0, or the aclError of ISTHMUS_ASCEND_FAULT or of a forked
 * process, with its message in aclGetRecentErrMsg(). Functions of Hccl return one of their own instead. */
int isthmus_ascend_fault(const char* function);

/* Kinds of tasks that a profiler tells apart: operators, collectives, copies. */
enum isthmus_ascend_task_kind { kKernelTask, kCollectiveTask, kCopyTask };

/* Whether a profiler records: between aclprofStart() and aclprofStop(). */
bool isthmus_ascend_profiles(void);

/* Marks the beginning of a task of a stream for the profiler. The task is what the stream is given until
 * isthmus_ascend_end_task(), which must follow.
 *
 * name: of the function that was called.
 * operands: parted by tabs: shapes, dtypes, those of the outputs; of a collective bytes, communicator.
 * Returns null if no profiler records the stream, or it is captured. */
struct isthmus_ascend_task* isthmus_ascend_begin_task(void* stream, enum isthmus_ascend_task_kind kind,
                                                      const char* name, const char* operands);
void isthmus_ascend_end_task(struct isthmus_ascend_task* task);

/* The host chip, initialised; null on failure, with its message in aclGetRecentErrMsg(). */
const struct isthmus_driver* isthmus_ascend_chip(void);

/* 0 if the bytes are memory of a device, or of this process; else an aclError. The first and the last are
 * looked up. */
int isthmus_ascend_memory(const void* pointer, size_t bytes);

/* The host chip's stream of an aclrtStream, and its device. Returns 0, or an aclError. */
int isthmus_ascend_queue(void* stream, struct isthmus_stream_t** queue, int* device);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ISTHMUS_ASCEND_ENQUEUE_H_ */
