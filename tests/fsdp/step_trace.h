#pragma once

/// What one step did, read from the trace: collectives by kind and group, events in order.

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/trace.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {

class StepTrace {
 public:
  /// Records what `body` does on this rank.
  template <class Body>
  static StepTrace of(RankTest& t, Body&& body) {
    StepTrace out;
    t.world().context()->set_trace(&out.trace_);
    body();
    t.world().context()->set_trace(nullptr);
    return out;
  }

  /// Collectives of one kind, by the group that asked.
  std::map<std::string, int> by_group(const std::string& op) const {
    std::map<std::string, int> out;
    for (const CollectiveRecord& record : collectives(op)) ++out[record.label];
    return out;
  }
  int count(const std::string& op) const { return static_cast<int>(collectives(op).size()); }
  std::vector<CollectiveRecord> collectives(const std::string& op) const {
    std::vector<CollectiveRecord> out = trace_.all<CollectiveRecord>();
    std::erase_if(out, [&op](const CollectiveRecord& record) { return record.op != op; });
    return out;
  }
  /// "phase group" of gathers and post-backwards.
  std::vector<std::string> events() const {
    std::vector<std::string> out = trace_.annotations("fsdp");
    std::erase_if(out, [](const std::string& event) {
      return !event.starts_with("unshard ") && !event.starts_with("post_backward ");
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
