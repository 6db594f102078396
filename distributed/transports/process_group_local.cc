#include "tessera/distributed/transports/process_group_local.h"

#include <exception>
#include <numeric>
#include <utility>

#include "tessera/distributed/resolved_collective.h"
#include "tessera/distributed/transports/local_meeting.h"
#include "tessera/distributed/transports/local_mover.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/device.h"
#include "tessera/tensor/streams/stream.h"

namespace tessera::distributed {
namespace {

void perform(LocalMeetings& meetings, const ResolvedCollective& call, LocalMover& mover) {
  call.ticket.note(FlightState::kWaiting);
  try {
    meetings.perform(call, mover);
  } catch (...) {
    call.ticket.note(FlightState::kFailed);
    throw;
  }
  call.ticket.note(FlightState::kDone);
}

// A rank's part in the barriers of a group. Its handle and its queued collectives own it, so the
// rank has left when the last of them is destroyed.
class Membership {
 public:
  Membership(std::shared_ptr<LocalMeetings> meetings, int rank)
      : meetings_(std::move(meetings)), rank_(rank) {}
  ~Membership() { meetings_->leave(rank_); }
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  LocalMeetings& meetings() const { return *meetings_; }

 private:
  std::shared_ptr<LocalMeetings> meetings_;
  int rank_;
};

class LocalGroup final : public ProcessGroup {
 public:
  LocalGroup(Identity identity, std::shared_ptr<LocalMeetings> meetings)
      : ProcessGroup(std::move(identity)),
        membership_(std::make_shared<Membership>(std::move(meetings), rank())) {}
  // A rank that fails aborts its sub-groups before any other rank learns why. The ranks of the
  // sub-groups must not report that as the cause.
  ~LocalGroup() override {
    if (std::uncaught_exceptions() > 0) abort("it has left the group by an exception");
  }

  std::string backend() const override { return "local"; }

  bool carries(DeviceType type) const override {
    return type == DeviceType::kCpu || (type == DeviceType::kCuda && kBuiltWithCuda);
  }

  // On the CPU a closure of the stream moves the data; on a GPU this thread issues the moves.
  void run(const Collective& call) override {
    const Device device = collective_device(call);
    if (device.is_null()) return call.ticket.note(FlightState::kDone);
    if (device.is_cuda()) {
      const std::unique_ptr<LocalMover> mover = make_gpu_mover(current_stream(device));
      return perform(membership_->meetings(), resolve(*this, call), *mover);
    }
    current_stream(kCpu).enqueue(collective_name(call),
                                 [membership = membership_, resolved = resolve(*this, call)] {
                                   perform(membership->meetings(), resolved, cpu_mover());
                                 });
  }

  void abort(const std::string& reason) noexcept override {
    membership_->meetings().abort(rank(), reason);
  }

  std::shared_ptr<ProcessGroup> make_subgroup(const SubgroupRequest& request) override {
    return std::make_shared<LocalGroup>(
        request.identity, membership_->meetings().subgroup(request.key, request.identity.ranks));
  }

 private:
  std::shared_ptr<Membership> membership_;
};

}  // namespace

std::vector<std::shared_ptr<ProcessGroup>> make_local_groups(const std::string& name, int size,
                                                             std::chrono::milliseconds timeout) {
  TESSERA_CHECK(size >= 1, "make_local_groups", "size must be at least 1, got {}", size);
  std::vector<std::shared_ptr<ProcessGroup>> groups;
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto meetings = std::make_shared<LocalMeetings>(ranks, timeout);
  for (int rank = 0; rank < size; ++rank) {
    groups.push_back(std::make_shared<LocalGroup>(
        ProcessGroup::Identity{.name = name, .rank = rank, .ranks = ranks}, meetings));
  }
  return groups;
}

}  // namespace tessera::distributed
