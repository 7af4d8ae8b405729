/* How the other libraries of the reference runtime run work in the order of a stream of libascendcl.so. */
#ifndef ISTHMUS_ASCEND_ENQUEUE_H_
#define ISTHMUS_ASCEND_ENQUEUE_H_

#ifdef __cplusplus
extern "C" {
#endif

/* Runs function(data) on the stream's thread after the work enqueued so far, and returns at once. The function may
 * read and write device memory; it must not call an acl function that waits for a stream, and must not throw.
 *
 * stream: an aclrtStream, or null for the default stream of the calling thread's device.
 * Returns 0, or an aclError, with its message in aclGetRecentErrMsg(); the function does not run then. */
int isthmus_ascend_enqueue(void* stream, void (*function)(void*), void* data);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ISTHMUS_ASCEND_ENQUEUE_H_ */
