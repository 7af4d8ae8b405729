// The model of the core's thread-local data.
#pragma once

// On x86-64 an access is one instruction, with no call and no guard. Other machines reserve too little for
// libraries that are opened while the program runs, and their usual model is nearly as fast.
#if defined(__x86_64__)
#define ISTHMUS_THREAD_LOCAL_MODEL __attribute__((tls_model("initial-exec")))
#else
#define ISTHMUS_THREAD_LOCAL_MODEL
#endif
