#pragma once

/// Collectives over lists of tensors ("coalesced": one operation, one trace record, one wait for
/// all members).
///
/// Each is asynchronous: it is issued on the calling thread's current stream; order later work
/// after it with Stream::record and wait. On an inline stream it is complete when the call returns.
/// Reductions add in rank order, so every transport gives the same bits. Throws InvalidArgument for
/// members that are not contiguous, differ in dtype or device, or have extents that do not fit;
/// CollectiveError and TimeoutError as ProcessGroup::run.
///
/// `label` names who asks (a parameter group) in errors and traces.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/distributed/process_group.h"

namespace tessera::distributed {

/// outputs[i] = concatenation along dim 0 of every rank's inputs[i]. inputs[i] may have any shape
/// with numel * size == outputs[i].numel(). Bytes sent by each rank: (size - 1) * bytes of inputs.
void all_gather(ProcessGroup& group, std::span<const Tensor> inputs,
                std::span<const Tensor> outputs, const std::string& label = {});
/// outputs[i] = part `rank` (of `size` equal parts along dim 0) of the reduction of every rank's
/// inputs[i]. Bytes sent by each rank: (size - 1) / size * bytes of inputs.
void reduce_scatter(ProcessGroup& group, std::span<const Tensor> inputs,
                    std::span<const Tensor> outputs, ReduceOp op = ReduceOp::kSum,
                    const std::string& label = {});
/// tensors[i] = reduction over all ranks, in place. Bytes sent by each rank: (size - 1) * bytes
/// (every rank adds for itself).
void all_reduce(ProcessGroup& group, std::span<const Tensor> tensors, ReduceOp op = ReduceOp::kSum,
                const std::string& label = {});
/// Cuts every input in `size` equal parts along dim 0; part r goes to rank r, and place r of
/// outputs[i] takes what rank r sent. inputs[i] and outputs[i] have equally many elements, a
/// multiple of `size`, in any shape, and share no memory. Bytes sent by each rank: (size - 1) /
/// size * bytes of inputs.
void all_to_all(ProcessGroup& group, std::span<const Tensor> inputs,
                std::span<const Tensor> outputs, const std::string& label = {});
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
void all_to_all(ProcessGroup& group, std::span<const Tensor> inputs,
                std::span<const Tensor> outputs, const RowCounts& rows,
                const std::string& label = {});
/// tensors[i] = those of rank `root`, in place. Bytes sent: by the root (size - 1) * bytes, by the
/// others 0.
void broadcast(ProcessGroup& group, std::span<const Tensor> tensors, int root,
               const std::string& label = {});
/// Returns when every rank has called it; the host waits.
void barrier(ProcessGroup& group, const std::string& label = {});

/// What this rank's collectives amounted to since the process (or rank thread) began; always on.
struct CollectiveCounters {
  std::int64_t collectives = 0;
  std::int64_t bytes_sent = 0;
};
/// The counters of the calling rank's world. Rank threads each have their own.
CollectiveCounters collective_counters();

}  // namespace tessera::distributed
