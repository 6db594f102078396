#pragma once

/// What is known of NCCL without NCCL and without a GPU: the meaning of its status codes, and the
/// choice of calls for a collective. Private to this folder.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/distributed/process_group.h"
#include "tessera/tensor/dtype.h"

namespace tessera::distributed {

// What a status of NCCL means for a program: a table, without NCCL and without a GPU. Codes are
// those of ncclResult_t, which keep their numbers. Private to this folder.

enum class NcclOutcome : unsigned char {
  kDone,
  kPending,      ///< a call of a communicator that does not block: ask again
  kDeviceError,  ///< DeviceError: this rank's GPU, driver, or a wrong call
  kCollective,   ///< CollectiveError: the connection between ranks
  kPeer,         ///< CollectiveAborted: another rank failed first
};

struct NcclMeaning {
  const char* name = "";  ///< "ncclSystemError"
  NcclOutcome outcome = NcclOutcome::kDeviceError;
  const char* advice = "";  ///< what to do; empty where nothing is wrong
};

/// Of every code, also those that are not in the table: they are DeviceErrors with general advice.
NcclMeaning nccl_meaning(int code);

/// `NCCL reports NAME (code CODE) in WHAT: TEXT; ADVICE`. `text` is NCCL's own; `detail`, what it
/// says of its last error, follows in parentheses unless it is empty.
std::string nccl_message(int code, std::string_view what, std::string_view text,
                         std::string_view detail);

// Which way the members of a collective take with NCCL, and which reductions NCCL is trusted with:
// pure functions, without NCCL. Private to this folder.

/// What NCCL is asked to do with values.
enum class NcclReduction : std::uint8_t {
  kSum,
  kProduct,
  kMax,
  kMin,
  kAverage,
  kPremulSum,
  /// Not by NCCL: parts are exchanged, and this rank adds them up in rank order.
  kInRankOrder,
};

/// NCCL's reduction where it means what ReduceOp does, else kInRankOrder. By NCCL: sums and
/// products of everything (or, and for bools), minima and maxima of integers; averages and factors
/// where the number that NCCL multiplies with (1/ranks, or the factor, in the tensors' own dtype)
/// is exact enough: always in f32 and f64, in 16-bit floats where it is the number itself. Minima
/// and maxima of floats are ours, since a NaN wins here and loses there.
NcclReduction nccl_reduction(const ReduceOp& op, DType dtype, int ranks);

/// Parts smaller than this many bytes are packed into one message if there are at least two of
/// them: the copies into and out of the buffer cost less than the calls. Not measured yet.
inline constexpr std::size_t kNcclPackedPart = std::size_t{128} << 10;

/// The members of one call by the way they take, as indices in their order.
struct NcclRoutes {
  std::vector<std::size_t> packed{};  ///< through one buffer and one call of NCCL
  std::vector<std::size_t> direct{};  ///< each by a call of its own, all in one group of calls
  std::int64_t packed_elements = 0;   ///< of this rank's parts that are packed
};

struct NcclRouteRequest {
  CollectiveKind kind = CollectiveKind::kAllGather;
  int ranks = 1;
  std::size_t element_size = 4;
  /// Bytes of a registered slot; 0: there is none. With one, members of any size go through it as
  /// long as they fit in one after the other: what NCCL gains by registered memory is more than the
  /// copies.
  std::size_t slot_bytes = 0;
};

/// `elements`: of each member's part (one rank's). Empty members take no way. Only for all_gather,
/// reduce_scatter, all_reduce, broadcast and reduce. Equal on all ranks for equal arguments.
NcclRoutes nccl_routes(const NcclRouteRequest& request, std::span<const std::int64_t> elements);

/// Bytes of the buffer that `elements` packed elements of a part need: all_gather and
/// reduce_scatter have their whole and their part side by side, others work in place. Parts start
/// on 16-byte boundaries.
struct NcclPackedBuffer {
  std::size_t bytes = 0;
  std::size_t part_at = 0;   ///< this rank's part
  std::size_t whole_at = 0;  ///< the parts of all ranks, in rank order; in place: the same
};
NcclPackedBuffer nccl_packed_buffer(const NcclRouteRequest& request, std::int64_t elements);

}  // namespace tessera::distributed
