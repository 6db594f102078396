#include "tessera/distributed/transports/process_group_fake.h"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>

#include "tessera/distributed/collective_checks.h"
#include "tessera/distributed/resolved_collective.h"
#include "tessera/distributed/transports/local_mover.h"
#include "tessera/distributed/transports/reduce_on_gpu.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/device.h"
#include "tessera/tensor/streams/stream.h"

namespace tessera::distributed {
namespace {

// Fills the outputs of one collective, of which all ranks but one are made up.
class FakeMove {
 public:
  FakeMove(const ResolvedCollective& call, int size, FakeData data, LocalMover& mover)
      : call_(call), size_(size), repeat_(data == FakeData::kRepeat), mover_(mover) {}

  void run() const {
    for (const ResolvedMember& member : call_.members) move(member);
    for (const ResolvedMessage& message : call_.receives) receive(message);
  }

 private:
  std::size_t bytes(std::int64_t count) const {
    return static_cast<std::size_t>(count) * call_.element_size();
  }

  void move(const ResolvedMember& member) const {
    switch (call_.kind) {
      case CollectiveKind::kAllGather:
      case CollectiveKind::kGather:
        if (member.output != nullptr) gather(member);
        return;
      case CollectiveKind::kReduceScatter:
        // Part `rank` of every made-up input is part `rank` of this one.
        return reduce(member.input + call_.site.rank * bytes(member.count_out), member.output,
                      member.count_out);
      case CollectiveKind::kAllReduce:
        return reduce(member.input, member.output, member.count_in);
      case CollectiveKind::kReduce:
        if (call_.site.rank == call_.root) reduce(member.input, member.output, member.count_in);
        return;
      case CollectiveKind::kAllToAll:
        return exchange(member);
      case CollectiveKind::kBroadcast:
        return;  // what the root would send is what this rank has, or nothing is known of it
      case CollectiveKind::kScatter:
        return scatter(member);
      case CollectiveKind::kExchange:
      case CollectiveKind::kBarrier:
        return;
    }
  }

  // In rank order, this rank's part in its place.
  void gather(const ResolvedMember& member) const {
    const std::size_t part = bytes(member.count_in);
    for (int rank = 0; rank < size_; ++rank) {
      std::byte* place = member.output + static_cast<std::size_t>(rank) * part;
      if (rank == call_.site.rank || repeat_) {
        mover_.copy(place, member.input, part);
      } else {
        mover_.clear(place, part);
      }
    }
  }

  void reduce(const std::byte* mine, std::byte* out, std::int64_t count) const {
    if (count == 0) return;
    if (!repeat_) return mover_.copy(out, mine, bytes(count));
    const std::vector<const void*> sources(static_cast<std::size_t>(size_), mine);
    mover_.reduce(call_, sources, out, count);
  }

  // Every rank sends this one what it gets from it, as far as the rows go.
  void exchange(const ResolvedMember& member) const {
    const std::size_t row = bytes(member.row_elements);
    std::size_t from = 0, to = 0;
    for (std::size_t rank = 0; rank < call_.rows_sent.size(); ++rank) {
      const std::size_t sent = static_cast<std::size_t>(call_.rows_sent[rank]) * row;
      const std::size_t received = static_cast<std::size_t>(call_.rows_received[rank]) * row;
      const bool known = repeat_ || static_cast<int>(rank) == call_.site.rank;
      const std::size_t copied = known ? std::min(sent, received) : 0;
      mover_.copy(member.output + to, member.input + from, copied);
      mover_.clear(member.output + to + copied, received - copied);
      from += sent;
      to += received;
    }
  }

  void scatter(const ResolvedMember& member) const {
    const std::size_t part = bytes(member.count_out);
    if (member.input != nullptr) {
      mover_.copy(member.output, member.input + call_.site.rank * part, part);
    } else {
      mover_.clear(member.output, part);
    }
  }

  // A message to this rank itself arrives; of the others nothing is known.
  void receive(const ResolvedMessage& message) const {
    for (const ResolvedMessage& sent : call_.sends) {
      if (message.peer != call_.site.rank || sent.peer != message.peer) continue;
      if (sent.place == message.place)
        return mover_.copy(message.data, sent.data, bytes(message.count));
    }
    mover_.clear(message.data, bytes(message.count));
  }

  const ResolvedCollective& call_;
  int size_;
  bool repeat_;
  LocalMover& mover_;
};

// Why a group and its sub-groups were aborted. Thread-safe.
class Abort {
 public:
  void set(const std::string& reason) {
    std::lock_guard lock(mutex_);
    if (!reason_) reason_ = reason;
  }
  std::optional<std::string> reason() const {
    std::lock_guard lock(mutex_);
    return reason_;
  }

 private:
  mutable std::mutex mutex_;
  std::optional<std::string> reason_;
};

class FakeGroup final : public ProcessGroup {
 public:
  FakeGroup(Identity identity, FakeOptions options, std::shared_ptr<Abort> aborted)
      : ProcessGroup(std::move(identity)),
        options_(std::move(options)),
        aborted_(std::move(aborted)) {}

  std::string backend() const override { return "fake"; }

  bool carries(DeviceType type) const override {
    return type == DeviceType::kCpu || (type == DeviceType::kCuda && kBuiltWithCuda);
  }

  void run(const Collective& call) override {
    if (const std::optional<std::string> reason = aborted_->reason()) {
      ResolvedCollective aborted;
      aborted.site = site_of(*this, call);
      throw_aborted(aborted, fmt::format("was aborted: rank {} failed: {}", rank(), *reason));
    }
    const Device device = collective_device(call);
    const DeviceStream& stream = current_stream(device);
    if (options_.cost) stream_sleep(stream, options_.cost(*this, call));
    if (device.is_null()) return call.ticket.note(FlightState::kDone);
    if (device.is_cuda()) return perform_on_gpu(resolve(*this, call), stream);
    stream.enqueue(collective_name(call),
                   [resolved = resolve(*this, call), size = size(), data = options_.data] {
                     FakeMove(resolved, size, data, cpu_mover()).run();
                     resolved.ticket.note(FlightState::kDone);
                   });
  }

  void abort(const std::string& reason) noexcept override { aborted_->set(reason); }

  std::shared_ptr<ProcessGroup> make_subgroup(const SubgroupRequest& request) override {
    return std::make_shared<FakeGroup>(request.identity, options_, aborted_);
  }

 private:
  // This thread issues the moves.
  void perform_on_gpu(const ResolvedCollective& call, const DeviceStream& stream) const {
    const bool adds_up = is_reduction(call.kind) && options_.data == FakeData::kRepeat;
    TESSERA_CHECK(!adds_up || size() <= kMostGpuSources, call.site.op.c_str(),
                  "{} is over {} ranks; on GPUs a fake group that repeats adds up at most {}",
                  call.str(), size(), kMostGpuSources);
    FakeMove(call, size(), options_.data, *make_gpu_mover(stream)).run();
    call.ticket.note(FlightState::kDone);
  }

  FakeOptions options_;
  std::shared_ptr<Abort> aborted_;
};

}  // namespace

std::shared_ptr<ProcessGroup> make_fake_group(const std::string& name, const FakeOptions& options) {
  TESSERA_CHECK(options.size >= 1 && options.rank >= 0 && options.rank < options.size,
                "make_fake_group", "rank {} of {}: need 0 <= rank < size", options.rank,
                options.size);
  std::vector<int> ranks(static_cast<std::size_t>(options.size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return std::make_shared<FakeGroup>(
      ProcessGroup::Identity{.name = name, .rank = options.rank, .ranks = std::move(ranks)},
      options, std::make_shared<Abort>());
}

std::function<double(const ProcessGroup& group, const Collective& call)> linear_cost(
    const LinearCostOptions& options) {
  TESSERA_CHECK(options.latency_ms >= 0 && options.gigabytes_per_s > 0, "linear_cost",
                "latency is {} ms and bandwidth {} GB/s; need at least 0, and more than 0",
                options.latency_ms, options.gigabytes_per_s);
  return [options](const ProcessGroup& group, const Collective& call) {
    if (group.size() == 1) return 0.0;
    const auto bytes = static_cast<double>(bytes_sent(group, call));
    return options.latency_ms + bytes / (options.gigabytes_per_s * 1e6);
  };
}

}  // namespace tessera::distributed
