#include "tessera/distributed/decorators.h"

#include <fmt/format.h>

#include <utility>

#include "tessera/distributed/resolved_collective.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/cuda/queue.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/streams/stream.h"

namespace tessera::distributed {
namespace {

// The messages that checked() sends around a decorated group are not collectives of the user.
bool is_check(const Collective& call) { return call.channel == Channel::kChecks; }

class Call final : public Decorator {
 public:
  Call(std::shared_ptr<ProcessGroup> group, CallHooks hooks)
      : Decorator(std::move(group)), hooks_(std::move(hooks)) {}
  void run(const Collective& call) override {
    if (is_check(call)) return Decorator::run(call);
    if (hooks_.before) hooks_.before(call);
    if (hooks_.instead && hooks_.instead(call)) return call.ticket.note(FlightState::kDone);
    Decorator::run(call);
    if (!hooks_.after) return;
    const DeviceStream& stream = current_stream(collective_device(call));
    if (stream.device().is_cuda()) {  // whose closures may not touch what is there
      stream.synchronize();
      return hooks_.after(call);
    }
    stream.enqueue("call.after", [after = hooks_.after, call] { after(call); });
  }

 private:
  CallHooks hooks_;
};

class Corrupt final : public Decorator {
 public:
  Corrupt(std::shared_ptr<ProcessGroup> group, const CorruptOptions& options)
      : Decorator(std::move(group)), options_(options) {}
  void run(const Collective& call) override {
    if (is_check(call) || call.kind != options_.kind || ++calls_ != options_.call)
      return Decorator::run(call);
    std::byte* place = place_in(call);
    Decorator::run(call);
    const DeviceStream& stream = current_stream(collective_device(call));
    if (stream.device().is_cuda()) {
      std::byte value{};
      stream.cuda_queue().copy_to_host(&value, place, 1);
      value ^= std::byte(options_.mask);
      return stream.cuda_queue().copy_from_host(place, &value, 1);
    }
    stream.enqueue("corrupt", [place, mask = options_.mask] { *place ^= std::byte(mask); });
  }

 private:
  std::byte* place_in(const Collective& call) const {
    for (const Tensor& output : outputs_of(*this, call)) {
      const auto bytes = output.numel() * static_cast<std::int64_t>(dtype_size(output.dtype()));
      if (options_.byte >= 0 && options_.byte < bytes) return address(output) + options_.byte;
    }
    throw_error<InvalidArgument>("corrupt", "no output of this {} has a byte {}",
                                 collective_name(call), options_.byte);
  }

  static std::byte* address(const Tensor& output) {
    const bool filling = output.storage().state() == StorageState::kFilling;
    return (filling ? fill_view(output) : overwrite(output, "corrupt")).as<std::byte>();
  }

  CorruptOptions options_;
  std::uint64_t calls_ = 0;
};

class Delay final : public Decorator {
 public:
  Delay(std::shared_ptr<ProcessGroup> group, CollectiveKind kind, double milliseconds)
      : Decorator(std::move(group)), kind_(kind), milliseconds_(milliseconds) {}
  void run(const Collective& call) override {
    if (call.kind == kind_ && !is_check(call))
      stream_sleep(current_stream(collective_device(call)), milliseconds_);
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
    if (is_check(call) || ++calls_ != n_) return Decorator::run(call);
    const CollectiveSite site = site_of(*this, call);
    current_stream(collective_device(call))
        .enqueue("fail_at", [site, n = n_, ticket = call.ticket] {
          ticket.note(FlightState::kFailed);
          throw CollectiveError(
              error_text(site.op, fmt::format("{} failed as asked: it is number {} of fail_at",
                                              site_text(site), n)),
              site);
        });
  }

 private:
  std::uint64_t n_;
  std::uint64_t calls_ = 0;
};

ProcessGroup::Identity identity_of(const std::shared_ptr<ProcessGroup>& group) {
  TESSERA_CHECK(group != nullptr, "decorator", "the group is null");
  return {.name = group->name(), .rank = group->rank(), .ranks = group->ranks()};
}

}  // namespace

Decorator::Decorator(std::shared_ptr<ProcessGroup> group)
    : ProcessGroup(identity_of(group)), group_(std::move(group)) {}

const std::vector<Tensor>& outputs_of(const ProcessGroup& group, const Collective& call) {
  const bool elsewhere = call.kind == CollectiveKind::kReduce && call.root != group.rank();
  const std::vector<Tensor>& outputs = is_in_place(call.kind) ? call.inputs : call.outputs;
  TESSERA_CHECK(!elsewhere && !outputs.empty(), "outputs_of", "this {} writes nothing on rank {}",
                collective_name(call), group.rank());
  return outputs;
}

std::shared_ptr<ProcessGroup> call(std::shared_ptr<ProcessGroup> group, CallHooks hooks) {
  return std::make_shared<Call>(std::move(group), std::move(hooks));
}

std::shared_ptr<ProcessGroup> corrupt(std::shared_ptr<ProcessGroup> group,
                                      const CorruptOptions& options) {
  return std::make_shared<Corrupt>(std::move(group), options);
}

std::shared_ptr<ProcessGroup> delay(std::shared_ptr<ProcessGroup> group, CollectiveKind kind,
                                    double milliseconds) {
  return std::make_shared<Delay>(std::move(group), kind, milliseconds);
}

std::shared_ptr<ProcessGroup> fail_at(std::shared_ptr<ProcessGroup> group, std::uint64_t n) {
  return std::make_shared<FailAt>(std::move(group), n);
}

}  // namespace tessera::distributed
