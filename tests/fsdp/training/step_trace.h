#pragma once

/// The trace of one step: collectives by kind and group, events in order.

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tessera/distributed/collective_counts.h"
#include "tessera/fsdp/runtime/annotations.h"
#include "tessera/tensor/trace.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {

class StepTrace {
 public:
  /// Returns the trace of `body` on this rank.
  template <class Body>
  static StepTrace of(RankTest&, Body&& body) {
    StepTrace out;
    const TraceScope recording(out.trace_);
    body();
    return out;
  }

  /// Collectives of one kind, by the group that issued them.
  std::map<std::string, int> by_group(const std::string& op) const {
    std::map<std::string, int> out;
    for (const auto& row : distributed::CollectiveCounts(trace_).rows()) {
      if (row.op == op) out[row.label] += static_cast<int>(row.collectives);
    }
    return out;
  }
  int count(const std::string& op) const {
    const distributed::CollectiveCounts counts(trace_);
    return static_cast<int>(counts.of({.op = op, .alone = true}).collectives);
  }
  std::vector<CollectiveRecord> collectives(const std::string& op) const {
    std::vector<CollectiveRecord> out = trace_.all<CollectiveRecord>();
    std::erase_if(out, [&op](const CollectiveRecord& record) { return record.op != op; });
    return out;
  }
  /// "phase group" of gathers and post-backwards.
  std::vector<std::string> events() const {
    std::vector<std::string> out = trace_.annotations(fsdp::kAnnotationDomain);
    std::erase_if(out, [](const std::string& event) {
      return event.starts_with(std::string(fsdp::kReshardPhase) + " ");
    });
    return out;
  }

 private:
  Trace trace_;
};

inline std::string text_of(const std::vector<std::string>& events) {
  std::string out;
  for (const std::string& event : events) out += event + "; ";
  return out;
}

}  // namespace tessera::testing
