#include "call_site.h"

#include <dlfcn.h>

#include <cstring>

#include "enqueue.h"

namespace isthmus::ascend {
namespace {

// Functions of the Python that this process runs, if it runs one.
struct Python {
  int (*is_initialized)();
  void* (*thread_state)();
  int (*ensure)();
  void (*release)(int);
  void* (*frame)();  // borrowed
  void* (*back)(void*);
  void* (*code)(void*);
  int (*line)(void*);
  void* (*attribute)(void*, const char*);
  const char* (*text)(void*);
  void (*unref)(void*);
  bool found = true;

  Python() {
    find(is_initialized, "Py_IsInitialized");
    find(thread_state, "PyGILState_GetThisThreadState");
    find(ensure, "PyGILState_Ensure");
    find(release, "PyGILState_Release");
    find(frame, "PyEval_GetFrame");
    find(back, "PyFrame_GetBack");
    find(code, "PyFrame_GetCode");
    find(line, "PyFrame_GetLineNumber");
    find(attribute, "PyObject_GetAttrString");
    find(text, "PyUnicode_AsUTF8");
    find(unref, "Py_DecRef");
  }

 private:
  template <typename Function>
  void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
    found = found && function != nullptr;
  }
};

bool is_pytorch(const std::string& file) {
  return file.find("/torch/") != std::string::npos || file.find("/torch_npu/") != std::string::npos;
}

std::string file_of(const Python& python, void* frame) {
  void* const code = python.code(frame);
  void* const name = python.attribute(code, "co_filename");
  const char* const text = name == nullptr ? nullptr : python.text(name);
  std::string file = text == nullptr ? "" : text;
  if (name != nullptr) python.unref(name);
  python.unref(code);
  return file;
}

}  // namespace

// The thread of torch_npu's task queue must not wait for Python: who has it may wait for the queue.
std::string call_site() {
  static const Python python;
  if (!python.found || !python.is_initialized() || isthmus_ascend_in_task_queue() ||
      python.thread_state() == nullptr)
    return {};
  const int state = python.ensure();
  std::string site;
  void* owned = nullptr;
  for (void* frame = python.frame(); frame != nullptr;) {
    const std::string file = file_of(python, frame);
    if (site.empty() || !is_pytorch(file)) site = file + ":" + std::to_string(python.line(frame));
    void* const next = is_pytorch(file) ? python.back(frame) : nullptr;
    if (owned != nullptr) python.unref(owned);
    frame = owned = next;
  }
  python.release(state);
  return site;
}

}  // namespace isthmus::ascend
