#pragma once

/// A fixed set of ranks that communicate together, whatever carries the bytes.
///
/// A transport implements one function, run(): it issues a checked Collective on the calling
/// thread's current stream and returns at once; decorators wrap the same function. Users call the
/// free functions of collectives.h, which check, number, trace and count before they call it. All
/// ranks of a group issue the same collectives in the same order; streams may differ, and
/// collectives issued on different streams may be under way together.
///
/// A group is driven by the thread of its rank; abort() may be called from any thread.

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "tessera/distributed/flight_recorder.h"
#include "tessera/distributed/label.h"
#include "tessera/distributed/reduce_op.h"
#include "tessera/tensor/error.h"
#include "tessera/tensor/tensor.h"

namespace tessera::distributed {

enum class CollectiveKind : std::uint8_t {
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kAllToAll,
  kBroadcast,
  kReduce,
  kGather,
  kScatter,
  kExchange,  ///< send and recv: any tensors between pairs of ranks
  kBarrier
};
const char* collective_name(CollectiveKind kind);  ///< "all_gather", ...

/// One tensor's other end in an exchange: the place-th message that goes this way on its channel.
struct PeerMessage {
  int peer = 0;
  std::uint64_t place = 0;
};

/// Messages of different channels never meet: what the library sends for itself stays apart from
/// what users send.
enum class Channel : std::uint8_t { kUser, kChecks };

/// One (possibly coalesced) collective. Tensors are contiguous and of one dtype; member i means the
/// same on every rank, but for exchanges.
struct Collective {
  CollectiveKind kind = CollectiveKind::kBarrier;
  ReduceOp reduce{};
  int root = 0;  ///< broadcast, scatter: the rank that sends; reduce, gather: the one that receives
  std::vector<Tensor> inputs{};   ///< all_gather, gather: this rank's parts; reduce_scatter,
                                  ///< scatter: full ones (scatter: the root's, else empty);
                                  ///< all_to_all, exchange: what is sent; else in place
  std::vector<Tensor> outputs{};  ///< all_gather, gather: full ones (gather: the root's, else
                                  ///< empty); reduce_scatter, scatter: this rank's parts;
                                  ///< all_to_all, exchange: what is received; else empty
  /// all_to_all: how many rows of every member go to each rank and come from it, and how many
  /// elements a row of each member has; else empty.
  std::vector<std::int64_t> rows_sent{};
  std::vector<std::int64_t> rows_received{};
  std::vector<std::int64_t> row_elements{};
  /// exchange: where each input goes and each output comes from.
  std::vector<PeerMessage> to{};
  std::vector<PeerMessage> from{};
  Channel channel = Channel::kUser;
  /// Position among the group's collectives, from 1. Exchanges, in which only some ranks take part,
  /// have 0.
  std::uint64_t sequence = 0;
  Label label{};          ///< the caller, for errors and traces
  FlightTicket ticket{};  ///< where the transport notes that it waits for peers and how that ended
};

/// "all_gather"; of an exchange what it is for this rank: "send", "recv" or "exchange".
const char* collective_name(const Collective& call);
/// "all_gather #17 (layers.1) of group "world"": for errors. Exchanges have no number.
std::string site_text(const CollectiveSite& site);

/// A collective that was aborted because something else failed first, here or on a peer. launch()
/// reports it only if it knows no other cause.
class CollectiveAborted : public CollectiveError {
 public:
  using CollectiveError::CollectiveError;
};

/// How long a collective may wait for its peers before it fails with TimeoutError, unless told
/// otherwise.
inline constexpr std::chrono::milliseconds kDefaultTimeout = std::chrono::minutes(5);

class ProcessGroup {
 public:
  struct Identity {
    std::string name;
    int rank = 0;            ///< this one's place in the group
    std::vector<int> ranks;  ///< the members' ranks in the world, by place
  };
  explicit ProcessGroup(Identity identity);
  virtual ~ProcessGroup() = default;
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  const std::string& name() const { return identity_.name; }
  int rank() const { return identity_.rank; }
  int size() const { return static_cast<int>(identity_.ranks.size()); }
  /// The members' ranks in the world, in group order.
  const std::vector<int>& ranks() const { return identity_.ranks; }

  /// What carries the bytes: "local", "gloo", "nccl", "fake".
  virtual std::string backend() const = 0;
  /// Whether it takes tensors of the device. Those of the null device go through any transport and
  /// are done at once.
  virtual bool carries(DeviceType type) const { return type == DeviceType::kCpu; }
  /// Issues the collective on the current stream of the tensors' device (barrier: CPU). Everything
  /// that goes wrong later poisons that stream; on an inline stream it is thrown here:
  /// CollectiveAborted (peer gone, abort), CollectiveError (the ranks disagree, a peer has left),
  /// TimeoutError (deadline). Each of them leaves the group aborted. Transports write outputs also
  /// while their storage is filling.
  virtual void run(const Collective& call) = 0;
  /// Wakes every wait of this group and its sub-groups, here and on the peers that can be reached;
  /// later calls fail with `reason`. Idempotent.
  virtual void abort(const std::string& reason) noexcept = 0;

  /// A group of some of this one's ranks, in the order given, which makes their places. Every
  /// member calls it with equal arguments, the members of several sub-groups in one order; ranks
  /// outside do not. No communication. `name`: empty gives "<name>[0,2]". The sub-group shares
  /// deadline and transport with its parent, and abort() of the parent; its collectives are
  /// numbered by themselves.
  /// Throws InvalidArgument for ranks outside the group, twice, or without this one.
  std::shared_ptr<ProcessGroup> subgroup(const std::vector<int>& members,
                                         const std::string& name = {});

  /// The number of the next collective, and of the next message to or from a peer; collectives.h
  /// calls them once per call. Decorators forward these numbers, so that a group and its decorated
  /// forms can be used side by side.
  virtual std::uint64_t next_sequence() { return ++sequence_; }
  virtual std::uint64_t next_place(Channel channel, int peer, bool sending);
  /// The same of sub-groups with these members and this name.
  virtual std::uint64_t next_subgroup(const std::string& members_and_name);

  struct SubgroupRequest {
    Identity identity;
    std::vector<int> members;  ///< ranks of the parent
    std::string key;           ///< equal on all members, different for every sub-group
  };
  /// What subgroup() asks of transports and decorators.
  virtual std::shared_ptr<ProcessGroup> make_subgroup(const SubgroupRequest& request) = 0;

 private:
  Identity identity_;
  std::uint64_t sequence_ = 0;
  std::map<std::tuple<Channel, int, bool>, std::uint64_t> places_;
  std::map<std::string, std::uint64_t> subgroups_;  // how many there were, by members and name
};

}  // namespace tessera::distributed
