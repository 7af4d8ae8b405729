// One message from a rank to another. Small ones are copied to the control file, so the sender need not wait;
// of others the receiver copies from the sender's memory.
#pragma once

#include <string>
#include <vector>

#include "drivers/host/collectives/operation.h"

namespace isthmus::host {

class PointToPoint final : public Operation {
 public:
  PointToPoint(Request request, uint64_t number);

 private:
  enum class Phase { kTurn, kRoom, kTaken };

  bool step() override;
  std::vector<int32_t> late_ranks() const override;
  std::string late_for() const override;
  std::string label() const override;

  bool sends() const { return request_.kind == Kind::kSend; }
  bool step_of_sender();
  bool step_of_receiver();
  void write(Message& message);
  void read(const Message& message);
  void ring_both();

  const uint64_t number_;  // number of the message in its channel
  Channel& channel_;
  Phase phase_ = Phase::kTurn;
};

}  // namespace isthmus::host
