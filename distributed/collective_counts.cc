#include "tessera/distributed/collective_counts.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace tessera::distributed {
namespace {

bool fits(const std::string& wanted, const std::string& found) {
  return wanted.empty() || wanted == found;
}

}  // namespace

CollectiveCounts::CollectiveCounts(const ExecutionTrace& trace) {
  for (const CollectiveRecord& record : trace.all<CollectiveRecord>()) {
    auto row = std::find_if(rows_.begin(), rows_.end(), [&](const Row& each) {
      return each.op == record.op && each.group == record.group && each.label == record.label &&
             each.group_size == record.group_size;
    });
    if (row == rows_.end()) {
      rows_.push_back({.op = record.op,
                       .group = record.group,
                       .label = record.label,
                       .group_size = record.group_size});
      row = std::prev(rows_.end());
    }
    ++row->collectives;
    row->bytes_sent += record.bytes_sent;
  }
}

CollectiveCounters CollectiveCounts::of(const CollectiveFilter& filter) const {
  CollectiveCounters out;
  for (const Row& row : rows_) {
    if (!fits(filter.op, row.op) || !fits(filter.group, row.group) ||
        !fits(filter.label, row.label) || (row.group_size == 1 && !filter.alone))
      continue;
    out.collectives += row.collectives;
    out.bytes_sent += row.bytes_sent;
  }
  return out;
}

std::string CollectiveCounts::str() const {
  std::string out;
  for (const Row& row : rows_) {
    if (row.group_size == 1) continue;
    const std::string label = row.label.empty() ? "" : fmt::format(" ({})", row.label);
    out += fmt::format("{} {} of {}{}: {} bytes\n", row.collectives, row.op, row.group, label,
                       row.bytes_sent);
  }
  return out;
}

}  // namespace tessera::distributed
