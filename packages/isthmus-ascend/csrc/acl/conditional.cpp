// Branches of models: models of their own that run or not, as a value in device memory says.
#include <cstring>
#include <string>
#include <system_error>
#include <thread>

#include "failures.h"
#include "memory.h"
#include "model.h"

namespace isthmus::ascend {
namespace {

constexpr uint32_t kAssignInitial = 1;
enum BranchType { kIf = 0 };

Handles<Condition>& conditions() {
  static Handles<Condition>* const conditions = new Handles<Condition>{HandleKind::kCondition};
  return *conditions;
}

struct Branch final : Work {
  const std::shared_ptr<Condition> condition;
  const std::shared_ptr<Model> model;
  const int32_t device;
  isthmus_stream queue = nullptr;  // on which the model runs

  Branch(std::shared_ptr<Condition> condition, std::shared_ptr<Model> model, int32_t device)
      : condition(std::move(condition)), model(std::move(model)), device(device) {
    const DeviceScope scope(device);
    check(chip().stream_create(ISTHMUS_STREAM_PRIORITY_DEFAULT, &queue));
  }
  ~Branch() override { chip().stream_destroy(queue); }

  void run() override {
    if (*condition->at_host == 0 || model->graph == nullptr) return;
    model->assign_conditions();
    // Work of a stream may not call the driver.
    try {
      std::thread([this] { execute(); }).join();
    } catch (const std::system_error& error) {
      keep_failure(device, {kRuntimeInternal, std::string("cannot start the thread of a branch: ") +
                                                  error.what() + "; raise `ulimit -u`"});
    }
  }

  void execute() noexcept {
    isthmus_status status = chip().graph_launch(model->graph, queue);
    if (status == ISTHMUS_OK) status = chip().stream_synchronize(queue);
    if (status != ISTHMUS_OK) keep_failure(device, {code_of(status), chip().last_error()});
  }
};

}  // namespace

Condition::Condition(uint64_t initial, bool assigned) : initial(initial), assigned(assigned) {
  check(chip().memory_allocate(sizeof(uint64_t), &value));
  at_host = value_at(value);
  *at_host = initial;
}

Condition::~Condition() { chip().memory_free(value); }

}  // namespace isthmus::ascend

using namespace isthmus::ascend;

// Layout of the runtime's aclmdlRICondTaskParams.
struct aclmdlRICondTaskParams {
  void* condition;
  int type;
  uint32_t count;
  void** models;  // written
};

// flags: 1 assigns the initial value at each execution of the model.
ISTHMUS_ASCEND_EXPORT int aclmdlRICondHandleCreate(void* model, uint32_t initial, uint32_t flags,
                                                   void** condition) {
  return call("aclmdlRICondHandleCreate", [&] {
    require_not_null(condition, "condition");
    if (flags > kAssignInitial) fail(kInvalidParameter, "flags %u; pass 0 or 1", flags);
    const auto found = model_at(model);
    current_context();
    auto created = std::make_shared<Condition>(initial, flags == kAssignInitial);
    const std::lock_guard<std::mutex> lock(found->mutex);
    found->conditions.push_back(created);
    *condition = found->own(conditions(), std::move(created));
  });
}

// pointer: of eight bytes of device memory that captured work writes.
ISTHMUS_ASCEND_EXPORT int aclmdlRICondHandleGetCondPtr(void* condition, uint64_t** pointer) {
  return call("aclmdlRICondHandleGetCondPtr", [&] {
    require_not_null(pointer, "pointer");
    *pointer =
        static_cast<uint64_t*>(require_found("condition", condition, conditions().get(condition))->value);
  });
}

// Adds a branch to the captured stream's model; its own model is captured by aclmdlRICaptureToModelRIBegin().
ISTHMUS_ASCEND_EXPORT int aclmdlRIAddCondTask(aclmdlRICondTaskParams parameters, void* stream, uint32_t) {
  return call("aclmdlRIAddCondTask", [&] {
    require_not_null(parameters.models, "models");
    if (parameters.type != kIf || parameters.count != 1)
      fail(kUnsupported, "a branch of type %d with %u models; the host chip has type %d with 1",
           parameters.type, parameters.count, kIf);
    const auto condition =
        require_found("condition", parameters.condition, conditions().get(parameters.condition));
    const auto captured = stream_of(stream);
    const auto parent = captured_model(*captured);
    const auto model = std::make_shared<Model>();
    enqueue_work(*captured, std::make_unique<Branch>(condition, model, captured->device));
    const std::lock_guard<std::mutex> lock(parent->mutex);
    parameters.models[0] = parent->own(models(), model);
  });
}

ISTHMUS_ASCEND_EXPORT int aclmdlRICaptureToModelRIBegin(void* stream, void* model, int mode) {
  return call("aclmdlRICaptureToModelRIBegin", [&] {
    const auto found = model_at(model);
    const auto captured = stream_of(stream);
    const std::lock_guard lock(captures());
    if (found->capture != 0) fail(kInvalidParameter, "model %u has been captured already", found->id);
    begin_capture(*captured, *found, mode);
  });
}
