// Lets libraries that are compiled on a newer system run with glibc 2.28 and its libstdc++ (manylinux_2_28),
// as wheels promise. The build of Isthmus compiles it into each library, as a source of its
// own; nothing includes it.
//
// Newer systems give old functions new versions, and have functions that older ones lack; a library that is
// linked there asks for both. All of them are defined here, hidden, so that the library asks for neither.
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

// Defines a function that jumps to the first version of itself, as if the caller had called that.
#if defined(__x86_64__)
#define ISTHMUS_JUMP(to) "jmp " to "@PLT\n"
#define ISTHMUS_FIRST(name, x86_64) ISTHMUS_VERSION(#name, "GLIBC_" x86_64)
#else
#define ISTHMUS_JUMP(to) "b " to "\n"
#define ISTHMUS_FIRST(name, x86_64) ISTHMUS_VERSION(#name, "GLIBC_2.17")
#endif
// clang-format off
#define ISTHMUS_VERSION(name, version)                            \
  __asm__(".symver isthmus_first_" name "," name "@" version "\n" \
          ".pushsection .text\n"                                  \
          ".globl " name "\n"                                     \
          ".hidden " name "\n"                                    \
          ".type " name ", %function\n"                           \
          name ":\n"                                              \
          ISTHMUS_JUMP("isthmus_first_" name)                     \
          ".size " name ", . - " name "\n"                        \
          ".popsection\n")
// clang-format on

// Since glibc 2.29 these set errno otherwise.
ISTHMUS_FIRST(exp, "2.2.5");
ISTHMUS_FIRST(log, "2.2.5");
ISTHMUS_FIRST(pow, "2.2.5");
// Since glibc 2.32 and 2.34 these are in libc instead of libpthread and libdl.
ISTHMUS_FIRST(dladdr, "2.2.5");
ISTHMUS_FIRST(dlclose, "2.2.5");
ISTHMUS_FIRST(dlerror, "2.2.5");
ISTHMUS_FIRST(dlopen, "2.2.5");
ISTHMUS_FIRST(dlsym, "2.2.5");
ISTHMUS_FIRST(pthread_mutex_trylock, "2.2.5");
ISTHMUS_FIRST(pthread_once, "2.2.5");
ISTHMUS_FIRST(pthread_rwlock_rdlock, "2.2.5");
ISTHMUS_FIRST(pthread_rwlock_unlock, "2.2.5");
ISTHMUS_FIRST(pthread_rwlock_wrlock, "2.2.5");
ISTHMUS_FIRST(pthread_setname_np, "2.12");
ISTHMUS_FIRST(pthread_sigmask, "2.2.5");
// std::condition_variable::wait, whose version of libstdc++ 12 can be cancelled.
ISTHMUS_VERSION("_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE", "GLIBCXX_3.4.11");

#undef ISTHMUS_FIRST
#undef ISTHMUS_JUMP
#undef ISTHMUS_VERSION

#define ISTHMUS_HIDDEN __attribute__((visibility("hidden")))

extern "C" {

// Tells std::shared_ptr whether the process has a single thread; glibc has it since 2.32.
ISTHMUS_HIDDEN char __libc_single_threaded = 0;

// Functions that glibc has since 2.33; they were inline before.
ISTHMUS_HIDDEN int fstat(int file, struct stat* info) noexcept {
  return static_cast<int>(syscall(SYS_fstat, file, info));
}
ISTHMUS_HIDDEN int stat(const char* path, struct stat* info) noexcept {
  return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, info, 0));
}
ISTHMUS_HIDDEN int lstat(const char* path, struct stat* info) noexcept {
  return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, info, AT_SYMLINK_NOFOLLOW));
}

// Waits until a time of any clock; glibc has it since 2.30. Where it is absent, a change of the wall clock
// shifts the time.
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
// Throws for an array of a size that is too large; libstdc++ has it since 11.
[[noreturn]] ISTHMUS_HIDDEN void __throw_bad_array_new_length() { throw bad_array_new_length(); }
}  // namespace std

#undef ISTHMUS_HIDDEN

#endif
