// An event that several processes record and wait for: a page of memory that they share.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "sharing.h"

namespace isthmus::host {

class SharedEvent {
 public:
  SharedEvent();  // a new one
  // For an event of another process; file was returned by open_handle().
  explicit SharedEvent(File file);
  ~SharedEvent();
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;

  void write_handle(isthmus_ipc_handle* handle) const;

  // Numbers a record; finish() marks its work as done. Waits if very many are outstanding.
  uint64_t start();
  void finish(uint64_t ticket);
  // The last record, or 0 if there was none or it is done.
  uint64_t pending() const;
  // Throws Failure if the process that recorded it has ended before its work was done.
  bool done(uint64_t ticket) const;
  void wait(uint64_t ticket) const;

 private:
  struct Page;

  void map();
  void require_recorder(uint64_t ticket) const;

  const File file_;
  Page* page_ = nullptr;
};

}  // namespace isthmus::host
