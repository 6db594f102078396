#include "tessera/distributed/nccl/nccl_routes.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "tessera/distributed/nccl/copy_segments.h"
#include "tessera/tensor/half.h"

namespace tessera::distributed {
namespace {

constexpr const char* kLog = "NCCL_DEBUG=WARN in the environment makes NCCL say more";
constexpr const char* kOurs = "that is a fault of Tessera: report it with this text";

struct Row {
  int code;
  NcclMeaning meaning;
};

// In ascending order.
constexpr Row kRows[] = {
    {0, {"ncclSuccess", NcclOutcome::kDone, ""}},
    {1,
     {"ncclUnhandledCudaError", NcclOutcome::kDeviceError,
      "a call of CUDA failed inside NCCL: look at the memory that is left on the GPU and at the "
      "driver; NCCL_DEBUG=WARN in the environment makes NCCL say more"}},
    {2,
     {"ncclSystemError", NcclOutcome::kCollective,
      "a call of the operating system failed: look at the network, at /dev/shm and at ulimit -l; "
      "NCCL_DEBUG=WARN in the environment makes NCCL say more"}},
    {3, {"ncclInternalError", NcclOutcome::kDeviceError, kLog}},
    {4, {"ncclInvalidArgument", NcclOutcome::kDeviceError, kOurs}},
    {5,
     {"ncclInvalidUsage", NcclOutcome::kDeviceError,
      "two ranks may be on one GPU, or the ranks' versions of NCCL differ: give each rank a GPU of "
      "its own, or start threads (--launch threads)"}},
    {6,
     {"ncclRemoteError", NcclOutcome::kPeer,
      "another rank has failed or is gone: its own message says why"}},
    {7, {"ncclInProgress", NcclOutcome::kPending, ""}},
};

}  // namespace

NcclMeaning nccl_meaning(int code) {
  const Row* found = std::find_if(std::begin(kRows), std::end(kRows),
                                  [code](const Row& row) { return row.code == code; });
  if (found != std::end(kRows)) return found->meaning;
  return {"an unknown status", NcclOutcome::kDeviceError, kLog};
}

std::string nccl_message(int code, std::string_view what, std::string_view text,
                         std::string_view detail) {
  const NcclMeaning meaning = nccl_meaning(code);
  const std::string more = detail.empty() ? std::string() : fmt::format(" ({})", detail);
  return fmt::format("NCCL reports {} (code {}) in {}: {}{}; {}", meaning.name, code, what, text,
                     more, meaning.advice);
}

namespace {

// Whether the dtype holds the number, or more of it than its sums keep.
bool holds(DType dtype, double number) {
  switch (dtype) {
    case DType::kBF16:
      return static_cast<double>(static_cast<float>(BFloat16(static_cast<float>(number)))) ==
             number;
    case DType::kF16:
      return static_cast<double>(static_cast<float>(Float16(static_cast<float>(number)))) == number;
    default:
      return true;
  }
}

bool is_float(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kBF16 ||
         dtype == DType::kF16;
}

NcclReduction of_bools(ReduceOp::Kind kind) {
  const bool all = kind == ReduceOp::Kind::kMin || kind == ReduceOp::Kind::kProduct;
  return all ? NcclReduction::kMin : NcclReduction::kMax;
}

bool has_parts(CollectiveKind kind) {
  return kind == CollectiveKind::kAllGather || kind == CollectiveKind::kReduceScatter;
}

}  // namespace

NcclReduction nccl_reduction(const ReduceOp& op, DType dtype, int ranks) {
  using Kind = ReduceOp::Kind;
  if (dtype == DType::kBool) return of_bools(op.kind);
  switch (op.kind) {
    case Kind::kSum:
      return NcclReduction::kSum;
    case Kind::kProduct:
      return NcclReduction::kProduct;
    case Kind::kMin:
      return is_float(dtype) ? NcclReduction::kInRankOrder : NcclReduction::kMin;
    case Kind::kMax:
      return is_float(dtype) ? NcclReduction::kInRankOrder : NcclReduction::kMax;
    case Kind::kAverage:
      return holds(dtype, 1.0 / ranks) ? NcclReduction::kAverage : NcclReduction::kInRankOrder;
    case Kind::kPremulSum:
      return holds(dtype, op.factor) ? NcclReduction::kPremulSum : NcclReduction::kInRankOrder;
  }
  return NcclReduction::kInRankOrder;
}

NcclPackedBuffer nccl_packed_buffer(const NcclRouteRequest& request, std::int64_t elements) {
  constexpr std::size_t kAlignment = 16;
  const std::size_t part = static_cast<std::size_t>(elements) * request.element_size;
  if (!has_parts(request.kind)) return {.bytes = part};
  const std::size_t whole_at = (part + kAlignment - 1) / kAlignment * kAlignment;
  return {.bytes = whole_at + part * static_cast<std::size_t>(request.ranks), .whole_at = whole_at};
}

NcclRoutes nccl_routes(const NcclRouteRequest& request, std::span<const std::int64_t> elements) {
  NcclRoutes out;
  const auto fits = [&](std::int64_t count) {
    if (request.slot_bytes == 0)
      return static_cast<std::size_t>(count) * request.element_size < kNcclPackedPart;
    return nccl_packed_buffer(request, out.packed_elements + count).bytes <= request.slot_bytes;
  };
  for (std::size_t i = 0; i < elements.size(); ++i) {
    if (elements[i] == 0) continue;
    if (!fits(elements[i])) {
      out.direct.push_back(i);
      continue;
    }
    out.packed.push_back(i);
    out.packed_elements += elements[i];
  }
  const bool pays = out.packed.size() > 1 || request.slot_bytes > 0;
  if (pays || out.packed.empty()) return out;
  out = {};  // one small member alone needs no copies
  for (std::size_t i = 0; i < elements.size(); ++i) {
    if (elements[i] > 0) out.direct.push_back(i);
  }
  return out;
}

int copy_unit(const CopySegment& segment) {
  std::uint64_t all = reinterpret_cast<std::uintptr_t>(segment.from) |
                      reinterpret_cast<std::uintptr_t>(segment.to) |
                      static_cast<std::uint64_t>(segment.row_bytes);
  if (segment.rows > 1) {
    all |= static_cast<std::uint64_t>(segment.from_pitch) |
           static_cast<std::uint64_t>(segment.to_pitch);
  }
  int unit = 16;
  while (all % static_cast<std::uint64_t>(unit) != 0) unit /= 2;
  return unit;
}

}  // namespace tessera::distributed
