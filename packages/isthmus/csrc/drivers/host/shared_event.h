// An event that several processes record and wait for, in a shared page of memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "sharing.h"

namespace isthmus::host {

class SharedEvent {
 public:
  SharedEvent();  // a new one
  // Opens an event of another process; file was returned by open_handle().
  explicit SharedEvent(File file);
  ~SharedEvent();
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;

  void write_handle(isthmus_ipc_handle* handle) const;

  // Starts a record and returns its number; finish() marks its work as done. Waits if too many are
  // outstanding.
  uint64_t start();
  void finish(uint64_t number);
  // The number of the last record, or 0 if there is none or it is done.
  uint64_t pending() const;
  // Throws Failure if the recording process has exited before its work was done.
  bool done(uint64_t number) const;
  void wait(uint64_t number) const;

 private:
  struct Page;

  void map();
  void require_recorder(uint64_t number) const;

  const File file_;
  Page* page_ = nullptr;
};

}  // namespace isthmus::host
