#pragma once

/// Collectives over lists of tensors ("coalesced": one operation, one trace record, one wait for
/// all members).
///
/// Each is asynchronous: it is issued on the calling thread's current stream. The Work that it
/// returns orders later work of other streams and of the host after it. On an inline stream it is
/// complete when the call returns. Reductions combine in rank order, so all transports except NCCL
/// give the same bits. All dtypes; kAverage and premul_sum need a floating one. Throws
/// InvalidArgument for members that are not contiguous, differ in dtype or device, are on a device
/// that the group does not carry, have extents that do not fit, or share memory that the call
/// writes; CollectiveError and TimeoutError as ProcessGroup::run. all_gather, gather,
/// reduce_scatter and scatter also work in place: the smaller tensor is then this rank's part of
/// the larger one.
///
/// `label` names the caller (a parameter group) in errors and traces.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/distributed/process_group.h"
#include "tessera/distributed/work.h"

namespace tessera::distributed {

/// outputs[i] = concatenation along dim 0 of every rank's inputs[i]. inputs[i] may have any shape
/// with numel * size == outputs[i].numel(). Bytes sent by each rank: (size - 1) * bytes of inputs.
Work all_gather(ProcessGroup& group, std::span<const Tensor> inputs,
                std::span<const Tensor> outputs, const Label& label = {});
/// outputs[i] = part `rank` (of `size` equal parts along dim 0) of the reduction of every rank's
/// inputs[i]. Bytes sent by each rank: (size - 1) / size * bytes of inputs.
Work reduce_scatter(ProcessGroup& group, std::span<const Tensor> inputs,
                    std::span<const Tensor> outputs, ReduceOp op = ReduceOp::kSum,
                    const Label& label = {});
/// tensors[i] = reduction over all ranks, in place. Bytes sent by each rank: (size - 1) * bytes
/// (every rank adds for itself).
Work all_reduce(ProcessGroup& group, std::span<const Tensor> tensors, ReduceOp op = ReduceOp::kSum,
                const Label& label = {});
/// Cuts every input in `size` equal parts along dim 0; part r goes to rank r, and place r of
/// outputs[i] takes what rank r sent. inputs[i] and outputs[i] have equally many elements, a
/// multiple of `size`, in any shape. Bytes sent by each rank: (size - 1) / size * bytes of inputs.
Work all_to_all(ProcessGroup& group, std::span<const Tensor> inputs,
                std::span<const Tensor> outputs, const Label& label = {});
/// How many rows of dim 0 go to each rank and come from each rank, this one included.
struct RowCounts {
  std::vector<std::int64_t> sent;
  std::vector<std::int64_t> received;
};
/// The same with parts of any number of rows, also 0, one after another in rank order; the counts
/// hold for every member. dim 0 of inputs[i] is the sum of `sent`, that of outputs[i] the sum of
/// `received`; the other dims are equal, on all ranks. What one rank sends another must be what
/// that one expects: local groups throw CollectiveError where it is not, gloo runs into the
/// deadline. Bytes sent: those of the rows for other ranks.
Work all_to_all(ProcessGroup& group, std::span<const Tensor> inputs,
                std::span<const Tensor> outputs, const RowCounts& rows, const Label& label = {});
/// tensors[i] = those of rank `root`, in place. Bytes sent: by the root (size - 1) * bytes, by the
/// others 0.
Work broadcast(ProcessGroup& group, std::span<const Tensor> tensors, int root,
               const Label& label = {});
/// tensors[i] of rank `root` = reduction over all ranks, in place; the other ranks' stay as they
/// are. Bytes sent: by the root 0, by the others their bytes.
Work reduce(ProcessGroup& group, std::span<const Tensor> tensors, int root,
            ReduceOp op = ReduceOp::kSum, const Label& label = {});
/// outputs[i] of rank `root` = concatenation along dim 0 of every rank's inputs[i]; the other ranks
/// pass no outputs. Bytes sent: by the root 0, by the others their bytes.
Work gather(ProcessGroup& group, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
            int root, const Label& label = {});
/// outputs[i] = part `rank` (of `size` equal parts along dim 0) of the root's inputs[i]; the other
/// ranks pass no inputs. Bytes sent: by the root (size - 1) / size * bytes, by the others 0.
Work scatter(ProcessGroup& group, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
             int root, const Label& label = {});

/// A tensor and the rank it goes to or comes from.
struct PeerTensor {
  int peer = 0;
  Tensor tensor;
};
/// Messages between pairs of ranks: sends and receives under way together, in no order that could
/// block. The k-th tensor that rank a sends to rank b is the k-th that b receives from a, over all
/// calls; sizes and dtypes agree, else CollectiveError on both (gloo: the deadline). What a rank
/// sends itself it receives in the same call. Not numbered with the group's collectives. Bytes
/// sent: those for other ranks.
Work exchange(ProcessGroup& group, std::span<const PeerTensor> sends,
              std::span<const PeerTensor> receives, const Label& label = {});
/// One direction alone. On an inline stream a send returns when its peer has received, so two ranks
/// that both send first never return: exchange() does both at once.
Work send(ProcessGroup& group, std::span<const Tensor> tensors, int to, const Label& label = {});
Work recv(ProcessGroup& group, std::span<const Tensor> tensors, int from, const Label& label = {});

/// Splits a group: ranks of one color make a sub-group (see ProcessGroup::subgroup), in the order
/// of their keys, equal keys in that of their ranks. A negative color takes part in none and gets
/// null. Collective; the host waits.
std::shared_ptr<ProcessGroup> split(ProcessGroup& group, int color, int key = 0,
                                    const std::string& name = {});

/// Returns when every rank has called it; the host waits.
void barrier(ProcessGroup& group, const Label& label = {});

/// What this rank's collectives amounted to since the process (or rank thread) began; always on.
/// Those of a group of one rank communicate nothing and do not count.
struct CollectiveCounters {
  std::int64_t collectives = 0;
  std::int64_t bytes_sent = 0;
};
/// The counters of the calling rank's world. Rank threads each have their own. By kind and group:
/// collective_counts.h.
CollectiveCounters collective_counters();

}  // namespace tessera::distributed
