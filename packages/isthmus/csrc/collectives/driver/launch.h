// One operation prepared for the driver: its contiguous tensors and the calls that enqueue it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "collectives/driver/work.h"
#include "collectives/elements.h"
#include "core/capture.h"

namespace isthmus {

class Launch {
 public:
  using Tensors = std::vector<at::Tensor>;
  using Enqueue = std::function<void(isthmus_comm, isthmus_stream)>;
  struct Options {
    std::chrono::milliseconds timeout;
    bool is_async = true;
    bool blocks = false;  // whether wait() blocks the host
  };

  // name is the one that users call, title the one in PyTorch's tools.
  Launch(c10d::OpType type, const char* name, std::string title);

  // The tensor, or a contiguous one in its place. Throws for tensors that are not of one device, or not
  // strided.
  at::Tensor read(const at::Tensor& tensor);
  at::Tensor write(const at::Tensor& tensor);   // written only
  at::Tensor update(const at::Tensor& tensor);  // read and written
  Tensors read(const Tensors& tensors);
  Tensors write(const Tensors& tensors);
  // The tensor, whose memory is used until the operation ends.
  at::Tensor keep(const at::Tensor& tensor);
  // Memory for the elements of all tensors.
  at::Tensor room_for(const Tensors& tensors);
  // Memory for the elements of all tensors; their own if they lie one after the other.
  at::Tensor in_one(const Tensors& tensors);

  // Parts of the whole, with the sizes of the given tensors.
  static Tensors parts(const at::Tensor& whole, const Tensors& like);

  // The calls of the driver, and copies of contiguous tensors before and after them.
  void copy_before(const at::Tensor& to, const at::Tensor& from) { before_.push_back({to, from}); }
  void copy_after(const at::Tensor& to, const at::Tensor& from) { after_.push_back({to, from}); }
  // Work of PyTorch's operators on the results, on the operation's stream.
  void compute_after(std::function<void()> function) { computations_.push_back(std::move(function)); }
  // is_group: the function makes several calls, which start together.
  void enqueue(Enqueue function, bool is_group = false) {
    enqueue_ = std::move(function);
    is_group_ = is_group;
  }

  c10d::OpType type() const { return type_; }
  c10::DeviceIndex device() const { return device_.index(); }
  int peer() const { return description_.peer(); }  // peer of a message, else -1
  Description& description() { return description_; }

  // Enqueues launches of one device, each on its communicator, and hands them to the work.
  static void run(std::vector<Launch>& launches, DriverWork& work, Group& group,
                  const std::vector<std::shared_ptr<Communicator>>& communicators, c10::Stream stream,
                  const Options& options, Description description);

 private:
  friend class CollectiveStep;
  using Copy = DriverWork::Copy;

  void check(const at::Tensor& tensor);
  // The tensor without its gradient; for a graph over the memory of now.
  at::Tensor hold(const at::Tensor& tensor);
  static void enqueue(std::vector<Launch>& launches, Group& group,
                      const std::vector<std::shared_ptr<Communicator>>& communicators, isthmus_stream stream);
  static void copy(const std::vector<Copy>& copies, isthmus_stream stream);
  // Enqueues launches with their copies, and hands what remains to be done after them to the work.
  static void enqueue_all(std::vector<Launch>& launches, Group& group,
                          const std::vector<std::shared_ptr<Communicator>>& communicators,
                          c10::Stream stream);
  static uint64_t count(const std::vector<Launch>& launches,
                        const std::vector<std::shared_ptr<Communicator>>& communicators);
  static void hand_over(std::vector<Launch>& launches, DriverWork::Launched& launched);
  static void capture(std::vector<Launch>& launches, DriverWork& work, Capture& capture,
                      DriverWork::Launched launched, Description description);

  c10d::OpType type_;
  Description description_;
  c10::Device device_{c10::DeviceType::PrivateUse1, 0};
  bool has_device_ = false;
  bool is_group_ = false;
  bool is_captured_ = false;
  std::map<const c10::StorageImpl*, c10::Storage> fixed_;
  Enqueue enqueue_;
  std::vector<Copy> before_, after_, strided_;
  std::vector<std::function<void()>> computations_;
  Tensors kept_;
  profiler::Collective row_;
};

}  // namespace isthmus
