#include "tessera/distributed/decorators.h"

#include <fmt/format.h>

#include <utility>

#include "tessera/distributed/resolved_collective.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/stream.h"

namespace tessera::distributed {
namespace {

// Passes everything on; decorators override run().
class Decorator : public ProcessGroup {
 public:
  explicit Decorator(std::shared_ptr<ProcessGroup> group)
      : ProcessGroup({.name = group->name(), .rank = group->rank(), .ranks = group->ranks()}),
        group_(std::move(group)) {}
  std::string backend() const override { return group_->backend(); }
  bool carries(DeviceType type) const override { return group_->carries(type); }
  void run(const Collective& call) override { group_->run(call); }
  void abort(const std::string& reason) noexcept override { group_->abort(reason); }
  std::uint64_t next_sequence() override { return group_->next_sequence(); }
  std::uint64_t next_place(Channel channel, int peer, bool sending) override {
    return group_->next_place(channel, peer, sending);
  }
  std::shared_ptr<ProcessGroup> make_subgroup(const SubgroupRequest& request) override {
    return group_->make_subgroup(request);
  }

 private:
  std::shared_ptr<ProcessGroup> group_;
};

class CallBefore final : public Decorator {
 public:
  CallBefore(std::shared_ptr<ProcessGroup> group, std::function<bool(const Collective&)> before)
      : Decorator(std::move(group)), before_(std::move(before)) {}
  void run(const Collective& call) override {
    if (before_(call)) {
      Decorator::run(call);
    } else {
      call.ticket.note(FlightState::kDone);
    }
  }

 private:
  std::function<bool(const Collective&)> before_;
};

class Delay final : public Decorator {
 public:
  Delay(std::shared_ptr<ProcessGroup> group, CollectiveKind kind, double milliseconds)
      : Decorator(std::move(group)), kind_(kind), milliseconds_(milliseconds) {}
  void run(const Collective& call) override {
    if (call.kind == kind_) stream_sleep(current_stream(collective_device(call)), milliseconds_);
    Decorator::run(call);
  }

 private:
  CollectiveKind kind_;
  double milliseconds_;
};

class FailAt final : public Decorator {
 public:
  FailAt(std::shared_ptr<ProcessGroup> group, std::uint64_t n)
      : Decorator(std::move(group)), n_(n) {}
  void run(const Collective& call) override {
    if (++calls_ != n_) return Decorator::run(call);
    const CollectiveSite site = site_of(*this, call);
    current_stream(collective_device(call))
        .enqueue("fail_at", [site, n = n_, ticket = call.ticket] {
          ticket.note(FlightState::kFailed);
          throw CollectiveError(
              error_text(
                  site.op,
                  fmt::format("{} #{} of group \"{}\" failed as asked: it is number {} of fail_at",
                              site.op, site.sequence, site.group, n)),
              site);
        });
  }

 private:
  std::uint64_t n_;
  std::uint64_t calls_ = 0;
};

}  // namespace

std::shared_ptr<ProcessGroup> call_before(std::shared_ptr<ProcessGroup> group,
                                          std::function<bool(const Collective&)> before) {
  return std::make_shared<CallBefore>(std::move(group), std::move(before));
}

std::shared_ptr<ProcessGroup> delay(std::shared_ptr<ProcessGroup> group, CollectiveKind kind,
                                    double milliseconds) {
  return std::make_shared<Delay>(std::move(group), kind, milliseconds);
}

std::shared_ptr<ProcessGroup> fail_at(std::shared_ptr<ProcessGroup> group, std::uint64_t n) {
  return std::make_shared<FailAt>(std::move(group), n);
}

}  // namespace tessera::distributed
