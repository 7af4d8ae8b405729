// Makes what is compiled on a newer system run with glibc 2.28 and its libstdc++ (manylinux_2_28), which is what
// wheels promise. The build of Isthmus includes it in each source (-include); no other header includes it.
//
// Newer systems give old functions new versions, and their headers call functions that older ones lack. Neither is
// used here: calls bind to the first version of a function, and the rest is defined here, hidden. No type changes.
#pragma once

#include <features.h>

#if defined(__GLIBC__) && (defined(__x86_64__) || defined(__aarch64__))

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <new>

// The version of glibc in which a function first was. The one that the linker would choose is of 2.29 to 2.34: since
// then log, exp and pow set errno otherwise, and libpthread and libdl are parts of libc.
#if defined(__x86_64__)
#define ISTHMUS_FIRST_VERSION(name, x86_64) __asm__(".symver " #name "," #name "@GLIBC_" x86_64)
#else
#define ISTHMUS_FIRST_VERSION(name, x86_64) __asm__(".symver " #name "," #name "@GLIBC_2.17")
#endif
ISTHMUS_FIRST_VERSION(dladdr, "2.2.5");
ISTHMUS_FIRST_VERSION(dlclose, "2.2.5");
ISTHMUS_FIRST_VERSION(dlerror, "2.2.5");
ISTHMUS_FIRST_VERSION(dlopen, "2.2.5");
ISTHMUS_FIRST_VERSION(dlsym, "2.2.5");
ISTHMUS_FIRST_VERSION(exp, "2.2.5");
ISTHMUS_FIRST_VERSION(log, "2.2.5");
ISTHMUS_FIRST_VERSION(pow, "2.2.5");
ISTHMUS_FIRST_VERSION(pthread_once, "2.2.5");
ISTHMUS_FIRST_VERSION(pthread_rwlock_rdlock, "2.2.5");
ISTHMUS_FIRST_VERSION(pthread_rwlock_unlock, "2.2.5");
ISTHMUS_FIRST_VERSION(pthread_rwlock_wrlock, "2.2.5");
ISTHMUS_FIRST_VERSION(pthread_setname_np, "2.12");
ISTHMUS_FIRST_VERSION(pthread_sigmask, "2.2.5");
#undef ISTHMUS_FIRST_VERSION
// std::condition_variable::wait, before it could be cancelled.
__asm__(
    ".symver _ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE,"
    "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.11");

#define ISTHMUS_HIDDEN inline __attribute__((visibility("hidden")))  // in a library that uses it, once

extern "C" {

// Whether the process has a single thread, of which std::shared_ptr makes use.
ISTHMUS_HIDDEN char __libc_single_threaded = 0;

// Functions of glibc 2.33; before it they were inline and called __xstat.
ISTHMUS_HIDDEN int fstat(int file, struct stat* info) noexcept {
  return static_cast<int>(syscall(SYS_fstat, file, info));
}
ISTHMUS_HIDDEN int stat(const char* path, struct stat* info) noexcept {
  return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, info, 0));
}
ISTHMUS_HIDDEN int lstat(const char* path, struct stat* info) noexcept {
  return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, info, AT_SYMLINK_NOFOLLOW));
}

// A function of glibc 2.30, in which timed waits ignore changes of the wall clock. Where it is absent they do not.
ISTHMUS_HIDDEN int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                                          const struct timespec* end) {
  using Wait = int (*)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);
  static const auto wait = reinterpret_cast<Wait>(dlsym(RTLD_DEFAULT, "pthread_cond_clockwait"));
  if (wait != nullptr) return wait(condition, mutex, clock, end);
  struct timespec now, wall;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &wall);
  constexpr long kSecond = 1'000'000'000;
  const long nanoseconds = wall.tv_nsec + end->tv_nsec - now.tv_nsec;  // more than -1 s, less than 2 s
  const long seconds = nanoseconds < 0 ? -1 : nanoseconds / kSecond;
  wall.tv_sec += end->tv_sec - now.tv_sec + seconds;
  wall.tv_nsec = nanoseconds - seconds * kSecond;
  return pthread_cond_timedwait(condition, mutex, &wall);
}

}  // extern "C"

namespace std {
// Of libstdc++ 11, called for an array of a size that is too large.
[[noreturn]] ISTHMUS_HIDDEN void __throw_bad_array_new_length() { throw bad_array_new_length(); }
}  // namespace std

#undef ISTHMUS_HIDDEN

#endif
