#pragma once

/// The collectives that a piece of a program issued on this rank, from the trace.

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tessera/tensor/trace.h"

namespace tessera::testing {

inline std::vector<CollectiveRecord> collectives_of(const std::function<void()>& body) {
  ExecutionTrace trace;
  {
    const TraceScope recording(trace);
    body();
  }
  return trace.all<CollectiveRecord>();
}

/// The number of records of `op`: "all_gather", "reduce_scatter", "all_reduce".
inline int count_of(const std::vector<CollectiveRecord>& records, const std::string& op) {
  int count = 0;
  for (const CollectiveRecord& record : records) count += record.op == op;
  return count;
}

inline std::set<DType> dtypes_of(const std::vector<CollectiveRecord>& records,
                                 const std::string& op) {
  std::set<DType> dtypes;
  for (const CollectiveRecord& record : records) {
    if (record.op == op) dtypes.insert(record.dtype);
  }
  return dtypes;
}

inline std::int64_t bytes_of(const std::vector<CollectiveRecord>& records, const std::string& op) {
  std::int64_t bytes = 0;
  for (const CollectiveRecord& record : records) bytes += record.op == op ? record.bytes_sent : 0;
  return bytes;
}

}  // namespace tessera::testing
