#include "tessera/distributed/trace/trace_events.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <variant>

#include "tessera/distributed/objects.h"
#include "tessera/distributed/trace/trace_event_writer.h"
#include "tessera/distributed/trace/trace_phases.h"
#include "tessera/distributed/trace/trace_work.h"
#include "tessera/tensor/check.h"

namespace tessera::distributed {
namespace {

// Behind the arrows of any rank.
constexpr std::int64_t kFirstArrowBetweenRanks = 1'000'000'000'000;

// A line of the counter for each change; categories that were never used are left out.
class MemoryTrack {
 public:
  MemoryTrack(TraceEventWriter& writer, const MemoryReading& held) : writer_(writer), held_(held) {}

  void set(std::size_t category, std::int64_t bytes) { held_.bytes[category] = bytes; }
  void write(std::int64_t at) {
    TraceArgs values;
    for (std::size_t i = 0; i < held_.bytes.size(); ++i) {
      used_[i] = used_[i] || held_.bytes[i] != 0;
      if (used_[i])
        values.add(memory_category_name(static_cast<MemoryCategory>(i)), held_.bytes[i]);
    }
    if (!values.members().empty()) writer_.counter(at, "memory", values);
  }

 private:
  TraceEventWriter& writer_;
  MemoryReading held_;
  std::array<bool, kMemoryCategories> used_{};
};

void write_memory(const ExecutionTrace& trace, const TraceView& view, TraceEventWriter& writer) {
  MemoryTrack memory(writer, view.held);
  memory.write(view.begin);
  for (std::size_t i = 0; i < trace.records().size(); ++i) {
    const auto* storage = std::get_if<StorageRecord>(&trace.records()[i]);
    if (storage == nullptr || storage->action == StorageAction::kDetach) continue;
    memory.set(static_cast<std::size_t>(storage->category), trace.stamps()[i].held);
    memory.write(trace.stamps()[i].issued);
  }
}

struct Stop {
  std::int64_t at;
  int rank;
  int track;
  bool operator<(const Stop& other) const {
    return std::tie(at, rank, track) < std::tie(other.at, other.rank, other.track);
  }
};

// As they are sent: two texts for each.
std::string packed(const std::vector<TracedCollective>& collectives) {
  std::vector<std::string> texts;
  for (const TracedCollective& each : collectives)
    texts.insert(texts.end(), {each.key, packed_numbers({each.track, each.begin})});
  return packed_texts(texts);
}

// Arrows through each collective, in the order in which the ranks begin it.
std::string arrows_between(const std::vector<RankEvents>& ranks) {
  std::map<std::string, std::vector<Stop>> stops;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::vector<std::string> texts = unpacked_texts(ranks[rank].collectives);
    for (std::size_t i = 0; i + 1 < texts.size(); i += 2) {
      const std::vector<std::int64_t> place = unpacked_numbers(texts[i + 1]);
      stops[texts[i]].push_back({.at = place.at(1),
                                 .rank = static_cast<int>(rank),
                                 .track = static_cast<int>(place.at(0))});
    }
  }
  std::string out;
  std::int64_t id = kFirstArrowBetweenRanks;
  for (auto& [key, at] : stops) {
    if (at.size() < 2) continue;
    std::sort(at.begin(), at.end());
    ++id;
    for (std::size_t i = 0; i < at.size(); ++i) {
      TraceEventWriter writer(at[i].rank, 0);
      const char phase = i == 0 ? 's' : i + 1 == at.size() ? 'f' : 't';
      writer.flow(phase, at[i].track, at[i].at, id, "collective");
      out += ",\n" + writer.text();
    }
  }
  return out;
}

}  // namespace

RankEvents rank_events(const ExecutionTrace& trace, const TraceView& view) {
  TESSERA_CHECK(trace.is_timed(), "rank_events",
                "a trace of {} records without times cannot be shown; make it with .timed = true",
                trace.records().size());
  TraceEventWriter writer(view.rank, view.shift);
  writer.name("process_name", 0, view.process);
  writer.order("process_sort_index", 0, view.rank);
  writer.name("thread_name", kHostTrack, "host");
  writer.order("thread_sort_index", kHostTrack, kHostTrack);
  write_phases(trace, view.end, writer, view.rank);
  const std::string collectives = packed(write_work(trace, writer, view.rank));
  write_memory(trace, view, writer);
  return {.events = writer.text(), .collectives = collectives};
}

std::string trace_file(const std::vector<RankEvents>& ranks, const std::string& about) {
  std::string out = "{\"displayTimeUnit\":\"ms\",\n\"otherData\":" + about + ",\n\"traceEvents\":[";
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    out += (rank == 0 ? "\n" : ",\n") + ranks[rank].events;
  return out + arrows_between(ranks) + "\n]}\n";
}

}  // namespace tessera::distributed
