#pragma once

/// How one collective is issued: in NCCL's own calls, or as messages, copies and additions. Private
/// to this folder and the NCCL process group.

#include <memory>
#include <vector>

#include "tessera/distributed/nccl/copy_segments.h"
#include "tessera/distributed/nccl/nccl_ring.h"
#include "tessera/distributed/nccl/nccl_session.h"
#include "tessera/distributed/transports/exchange_plan.h"

namespace tessera::distributed {

/// A communicator, and what it has of registered memory.
struct NcclLine {
  std::shared_ptr<NcclCommunicator> communicator{};
  std::unique_ptr<NcclRing> ring{};  ///< null: none
};

/// The calling thread's rank's share of `call`, on `stream`.
class NcclIssue {
 public:
  NcclIssue(NcclSession& session, const ResolvedCollective& call, const Stream& stream)
      : session_(session), call_(call), stream_(stream) {}

  /// all_gather, reduce_scatter, all_reduce, broadcast, reduce; `reduction` is not kInRankOrder.
  void by_calls(NcclLine& line, NcclReduction reduction);

  /// Any kind: a plan's messages, with the copies and additions around them.
  struct Way {
    NcclCommunicator* communicator = nullptr;
    int peer = 0;   ///< the other's place in it
    Stream stream;  ///< of its own where messages to several pairs run side by side
  };
  using Ways = std::vector<Way>;  ///< by rank of the group
  void by_messages(const ExchangePlan& plan, const NcclCommunicators& communicators,
                   const Ways& ways);

 private:
  struct Packed;
  void run_packed(NcclCommunicator& communicator, const Packed& packed, NcclReduction reduction);
  void run_direct(NcclCommunicator& communicator, const ResolvedMember& member,
                  NcclReduction reduction);
  void copy(const std::vector<ByteCopy>& copies);
  void reduce(const ExchangePlan& plan);
  std::vector<CopySegment> pack(const Packed& packed) const;
  std::vector<CopySegment> unpack(const Packed& packed) const;
  bool is_root(const NcclCommunicator& communicator) const {
    return communicator.rank() == call_.root;
  }

  NcclSession& session_;
  const ResolvedCollective& call_;
  const Stream stream_;
};

}  // namespace tessera::distributed
