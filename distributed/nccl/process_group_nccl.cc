#include "tessera/distributed/nccl/process_group_nccl.h"

#include <algorithm>
#include <exception>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "tessera/distributed/nccl/nccl_issue.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/cuda/device_guard.h"
#include "tessera/tensor/random.h"

namespace tessera::distributed {
namespace {

// Ranks choose equal keys without talking; a key is a word of its own in the store.
std::string key_under(const std::string& parent, const std::string& name) {
  return fmt::format("{}-{:016x}", parent.substr(0, 16),
                     random::named_key(random::named_key(0, parent).value, name).value);
}

bool is_by_calls(CollectiveKind kind) {
  return kind == CollectiveKind::kAllGather || kind == CollectiveKind::kReduceScatter ||
         kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kBroadcast ||
         kind == CollectiveKind::kReduce;
}

class NcclGroup final : public ProcessGroup {
 public:
  NcclGroup(Identity identity, NcclRankGroup rank_group, std::shared_ptr<NcclSession> session)
      : ProcessGroup(std::move(identity)),
        rank_group_(std::make_shared<NcclRankGroup>(std::move(rank_group))),
        session_(std::move(session)) {}
  ~NcclGroup() override {
    if (std::uncaught_exceptions() > 0) abort("it has left the group by an exception");
    session_->finish(*rank_group_);
  }

  std::string backend() const override { return "nccl"; }
  bool carries(DeviceType type) const override { return type == DeviceType::kCuda; }

  void run(const Collective& call) override {
    if (collective_device(call).is_null()) return call.ticket.note(FlightState::kDone);
    if (call.kind == CollectiveKind::kBarrier) return run_barrier(call);
    const Device device = collective_device(call);
    TESSERA_CHECK(device == this->device(), collective_name(call),
                  "{}: the tensors are on {}, and this rank's GPU is {}",
                  site_text(site_of(*this, call)), device.str(), this->device().str());
    issue(resolve(*this, call), current_stream(device));
  }

  void abort(const std::string& reason) noexcept override { session_->abort(reason); }

  std::shared_ptr<ProcessGroup> make_subgroup(const SubgroupRequest& request) override {
    return std::make_shared<NcclGroup>(
        request.identity,
        NcclRankGroup{.key = key_under(rank_group_->key, request.key),
                      .ranks = request.identity.ranks,
                      .place = request.identity.rank},
        session_);
  }

 private:
  Device device() const { return {DeviceType::kCuda, session_->options().device}; }

  // The host waits, as in the other transports' barriers: all-reduces a value that is not read.
  void run_barrier(const Collective& call) {
    const DeviceStream& stream = current_stream(device());
    MemoryBlock byte = MemoryBlock::take(1, stream, MemoryCategory::kCommunication);
    stream.cuda_queue().fill_bytes(byte.data(), 0, 1);
    ResolvedCollective resolved = resolve(*this, call);
    resolved.kind = CollectiveKind::kAllReduce;
    resolved.dtype = DType::kU8;
    resolved.device = device();
    auto* data = static_cast<std::byte*>(byte.data());
    resolved.members = {{.input = data, .output = data, .count_in = 1, .count_out = 1}};
    issue(resolved, stream);
    stream.synchronize();
  }

  void issue(const ResolvedCollective& call, const DeviceStream& stream) {
    session_->check(call);
    const bool is_exchange = call.kind == CollectiveKind::kExchange;
    if (!is_exchange) session_->note_issued(*rank_group_, call.site.sequence);
    const auto reduction = is_reduction(call.kind) ? nccl_reduction(call.reduce, call.dtype, size())
                                                   : NcclReduction::kSum;
    NcclIssue issue(*session_, call, stream);
    if (size() > 1 && is_by_calls(call.kind) && reduction != NcclReduction::kInRankOrder) {
      RegisteredCommunicator& registered = communicator_for(call);
      return watched(call, stream, {registered.communicator}, {},
                     [&] { issue.by_calls(registered, reduction); });
    }
    const PlannedExchange exchange = plan_exchange(call, size(), stream);
    NcclIssue::Ways ways(static_cast<std::size_t>(size()));
    const NcclCommunicators communicators = is_exchange
                                                ? ways_to_pairs(call, exchange.plan, stream, ways)
                                                : ways_in_group(call, stream, ways);
    watched(call, stream, communicators, is_exchange ? others(exchange.plan) : std::vector<int>(),
            [&] { issue.by_messages(exchange.plan, communicators, ways); });
  }

  // What `work` issues is under way from here on, until the stream has got past it; what becomes
  // part of a graph, in its replays.
  void watched(const ResolvedCollective& call, const DeviceStream& stream,
               const NcclCommunicators& communicators, std::vector<int> peers,
               const std::function<void()>& work) {
    if (communicators.empty()) {
      work();
      return call.ticket.note(FlightState::kDone);
    }
    NcclWork issued{.rank_group = rank_group_,
                    .site = call.site,
                    .ticket = call.ticket,
                    .peers = std::move(peers),
                    .communicators = communicators,
                    .context = current_rank_context(),
                    .stream = stream,
                    .begun = {},
                    .done = {}};
    if (cuda::is_capturing(stream.cuda_handle(), "collective")) {
      work();
      call.ticket.note(FlightState::kDone);
      issued.replays = stream.cuda_queue().captured_into();
      if (issued.replays != nullptr) session_->watch(std::move(issued));
      return;
    }
    call.ticket.note(FlightState::kWaiting);
    issued.begun = stream.cuda_queue().record();
    work();
    issued.done = stream.cuda_queue().record();
    session_->watch(std::move(issued));
  }

  // The group's communicator, or that of its reductions.
  RegisteredCommunicator& communicator_for(const ResolvedCollective& call) {
    const NcclSettings& settings = session_->options().settings;
    const bool apart = settings.separate_reductions && is_reduction(call.kind);
    RegisteredCommunicator& registered = apart ? reductions_ : registered_;
    if (registered.communicator != nullptr) return registered;
    NcclRankGroup rank_group = *rank_group_;
    if (apart) rank_group.key = key_under(rank_group.key, "reductions");
    registered.communicator = session_->connect({&rank_group, 1}, call).front();
    if (settings.buffers != NcclBuffers::kNone) {
      registered.ring = std::make_unique<NcclRing>(
          session_->allocate_slots(registered.communicator, call), settings.slot_bytes);
    }
    return registered;
  }

  NcclCommunicators ways_in_group(const ResolvedCollective& call, const DeviceStream& stream,
                                  NcclIssue::Ways& ways) {
    if (size() == 1) return {};
    RegisteredCommunicator& registered = communicator_for(call);
    for (int peer = 0; peer < size(); ++peer)
      ways[static_cast<std::size_t>(peer)] = {registered.communicator.get(), peer, stream};
    return {registered.communicator};
  }

  static std::set<int> places_in(const ExchangePlan& plan) {
    std::set<int> out;
    for (const Transfer& each : plan.sends) out.insert(each.peer);
    for (const Transfer& each : plan.receives) out.insert(each.peer);
    return out;
  }
  std::vector<int> others(const ExchangePlan& plan) const {
    std::vector<int> out;
    for (const int place : places_in(plan)) out.push_back(ranks()[static_cast<std::size_t>(place)]);
    return out;
  }

  // Pairs have communicators of their own, since the other ranks do not take part, and where there
  // are several a stream each: in one stream every rank would have to have them in one order.
  NcclCommunicators ways_to_pairs(const ResolvedCollective& call, const ExchangePlan& plan,
                                  const DeviceStream& stream, NcclIssue::Ways& ways) {
    const std::set<int> peers = places_in(plan);
    std::vector<NcclRankGroup> missing;
    for (const int peer : peers) {
      if (!pairs_.contains(peer)) missing.push_back(pair_with(peer));
    }
    const NcclCommunicators made = session_->connect(missing, call);
    auto next = made.begin();
    for (const int peer : peers) {
      if (!pairs_.contains(peer)) pairs_[peer].communicator = *next++;
    }
    NcclCommunicators out;
    for (const int peer : peers) {
      Pair& pair = pairs_.at(peer);
      if (peers.size() > 1 && !pair.stream.defined())
        pair.stream = DeviceStream::create(device(), StreamKind::kQueued, "messages");
      ways[static_cast<std::size_t>(peer)] = {pair.communicator.get(), peer < rank() ? 0 : 1,
                                              peers.size() > 1 ? pair.stream : stream};
      out.push_back(pair.communicator);
    }
    return out;
  }

  NcclRankGroup pair_with(int peer) const {
    const int low = std::min(peer, rank()), high = std::max(peer, rank());
    const auto in_world = [this](int place) { return ranks()[static_cast<std::size_t>(place)]; };
    return {.key = key_under(rank_group_->key, fmt::format("pair {} {}", low, high)),
            .ranks = {in_world(low), in_world(high)},
            .place = rank() == low ? 0 : 1};
  }

  struct Pair {
    std::shared_ptr<NcclCommunicator> communicator;
    DeviceStream stream;
  };

  const std::shared_ptr<const NcclRankGroup> rank_group_;
  const std::shared_ptr<NcclSession> session_;
  RegisteredCommunicator registered_;
  RegisteredCommunicator reductions_;
  std::map<int, Pair> pairs_;  // by the other's rank
};

void check_options(const NcclOptions& options) {
  constexpr const char* kWhere = "make_nccl_group";
  TESSERA_CHECK(options.size >= 1 && options.rank >= 0 && options.rank < options.size, kWhere,
                "rank {} of {}: need 0 <= rank < size", options.rank, options.size);
  TESSERA_CHECK(options.store != nullptr, kWhere, "there is no store for the ranks to meet in");
  TESSERA_CHECK(options.timeout.count() > 0, kWhere, "timeout must be positive, got {} ms",
                options.timeout.count());
  const bool has_slots = options.settings.buffers != NcclBuffers::kNone;
  TESSERA_CHECK(!has_slots || (options.settings.slots >= 1 && options.settings.slot_bytes > 0),
                kWhere, "{} slots of {} bytes: need at least one, of at least one byte",
                options.settings.slots, options.settings.slot_bytes);
  TESSERA_CHECK_AS(DeviceError, options.device >= 0 && options.device < cuda_device_count(), kWhere,
                   "there is no cuda:{}: this process sees {} GPUs", options.device,
                   cuda_device_count());
}

}  // namespace

bool has_nccl() { return true; }
int nccl_version() { return nccl_library_version(); }

std::shared_ptr<ProcessGroup> make_nccl_group(const std::string& name, const NcclOptions& options) {
  check_options(options);
  std::vector<int> ranks(static_cast<std::size_t>(options.size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return std::make_shared<NcclGroup>(
      ProcessGroup::Identity{.name = name, .rank = options.rank, .ranks = ranks},
      NcclRankGroup{.key = key_under("group", name), .ranks = ranks, .place = options.rank},
      std::make_shared<NcclSession>(options));
}

}  // namespace tessera::distributed
