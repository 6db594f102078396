#include "tessera/distributed/process_group.h"

#include <utility>

#include "tessera/tensor/check.h"

namespace tessera::distributed {

const char* collective_name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllGather:
      return "all_gather";
    case CollectiveKind::kReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::kAllReduce:
      return "all_reduce";
    case CollectiveKind::kAllToAll:
      return "all_to_all";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kBarrier:
      return "barrier";
  }
  return "?";
}

const char* reduce_op_name(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kMax:
      return "max";
  }
  return "?";
}

ProcessGroup::ProcessGroup(std::string name, int rank, int size)
    : name_(std::move(name)), rank_(rank), size_(size) {
  TESSERA_CHECK(size >= 1 && rank >= 0 && rank < size, "process_group",
                "rank {} of {} in group \"{}\": need 0 <= rank < size", rank, size, name_);
}

}  // namespace tessera::distributed
