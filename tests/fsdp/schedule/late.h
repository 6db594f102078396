#pragma once

/// Delays for streams in tests, which make a missing wait visible.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/autograd/function.h"
#include "tessera/autograd/variable.h"
#include "tessera/distributed/decorators.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tensor/trace.h"

namespace tessera::testing {

struct Lateness {
  distributed::CollectiveKind kind = distributed::CollectiveKind::kBarrier;
  double before_ms = 0;  ///< milliseconds of sleep on the collective's stream, before it
  double after_ms = 0;   ///< after it
  int only_rank = -1;    ///< rank in the group; -1: all ranks
};

/// Delays collectives of one kind, also those of sub-groups (which distributed::delay does not).
class LateGroup final : public distributed::Decorator {
 public:
  LateGroup(std::shared_ptr<distributed::ProcessGroup> group, const Lateness& lateness)
      : Decorator(std::move(group)), lateness_(lateness) {}
  void run(const distributed::Collective& call) override {
    const bool late =
        call.kind == lateness_.kind && (lateness_.only_rank < 0 || lateness_.only_rank == rank());
    if (late && lateness_.before_ms > 0)
      stream_sleep(current_stream(default_device()), lateness_.before_ms);
    Decorator::run(call);
    if (late && lateness_.after_ms > 0)
      stream_sleep(current_stream(default_device()), lateness_.after_ms);
  }
  std::shared_ptr<ProcessGroup> make_subgroup(const SubgroupRequest& request) override {
    return std::make_shared<LateGroup>(Decorator::make_subgroup(request), lateness_);
  }

 private:
  Lateness lateness_;
};

/// Returns x. Delays the current stream in forward and backward; the trace records the name.
inline Variable late(const Variable& x, double forward_ms, double backward_ms,
                     const std::string& name = "late") {
  annotate("test", name, "forward");
  stream_sleep(current_stream(x.device()), forward_ms);
  return record(
      "late", x.tensor().detached_version(), {x},
      [backward_ms, name](const Tensor& dy, const BackwardContext&) -> std::vector<Tensor> {
        annotate("test", name, "backward");
        stream_sleep(current_stream(dy.device()), backward_ms);
        return {dy};
      });
}

}  // namespace tessera::testing
