#include "tessera/distributed/trace/trace_work.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "tessera/distributed/trace/trace_phases.h"
#include "tessera/tensor/scope_name.h"

namespace tessera::distributed {
namespace {

constexpr int kFirstStreamTrack = 10;
constexpr std::int64_t kArrowsOfRank = 100'000'000;
constexpr const char* kKernel = "kernel";
constexpr const char* kCollective = "collective";
constexpr const char* kWait = "wait";

std::int64_t bytes_of(const std::vector<TraceBox>& boxes) {
  std::int64_t bytes = 0;
  for (const TraceBox& box : boxes)
    bytes += box.shape.numel() * static_cast<std::int64_t>(dtype_size(box.dtype));
  return bytes;
}

std::vector<std::int64_t> storages_of(const std::vector<TraceBox>& boxes) {
  std::vector<std::int64_t> out;
  for (const TraceBox& box : boxes) out.push_back(static_cast<std::int64_t>(box.storage));
  return out;
}

TraceArgs args_of(const KernelRecord& record, const RecordStamp& stamp) {
  TraceArgs args;
  if (stamp.scope) args.add_text("module", stamp.scope->path());
  const TraceBox* result = nullptr;
  if (!record.reads.empty()) result = &record.reads.front();
  if (!record.writes.empty()) result = &record.writes.front();
  if (result != nullptr) {
    args.add_text("dtype", dtype_name(result->dtype));
    args.add_text("shape", result->shape.str());
  }
  args.add("bytes", bytes_of(record.reads) + bytes_of(record.writes));
  args.add("reads", storages_of(record.reads));
  args.add("writes", storages_of(record.writes));
  return args;
}

// Elements of the whole values, which all ranks agree on; 0 where they need not.
std::int64_t whole_elements(const CollectiveRecord& record) {
  std::int64_t in = 0, out = 0;
  for (const CollectiveMember& member : record.members) {
    in += member.elements_in;
    out += member.elements_out;
  }
  if (record.op == "gather") return in * record.group_size;
  if (record.op == "scatter") return out * record.group_size;
  return std::max(in, out);
}

std::vector<std::int64_t> elements_in(const CollectiveRecord& record) {
  std::vector<std::int64_t> out;
  for (const CollectiveMember& member : record.members) out.push_back(member.elements_in);
  return out;
}

TraceArgs args_of(const CollectiveRecord& record, const RecordStamp& stamp) {
  TraceArgs args;
  args.add_text("op", record.op);
  if (!record.reduction.empty()) args.add_text("reduction", record.reduction);
  args.add_text("group", record.group);
  args.add("ranks", std::vector<std::int64_t>(record.ranks.begin(), record.ranks.end()));
  args.add("sequence", static_cast<std::int64_t>(record.sequence));
  args.add_text("label", record.label);
  if (stamp.scope) args.add_text("module", stamp.scope->path());
  args.add_text("dtype", dtype_name(record.dtype));
  args.add("bytes", whole_elements(record) * static_cast<std::int64_t>(dtype_size(record.dtype)));
  args.add("bytes_sent", record.bytes_sent);
  args.add("elements_in", elements_in(record));
  return args;
}

std::string key_of(const CollectiveRecord& record) {
  return fmt::format("{} [{}] {}", record.group, fmt::join(record.ranks, ","), record.sequence);
}

class WorkWriter {
 public:
  WorkWriter(const ExecutionTrace& trace, TraceEventWriter& writer, int rank)
      : trace_(trace), writer_(writer), tracks_(trace), next_arrow_(rank * kArrowsOfRank) {}

  std::vector<TracedCollective> write() {
    for (const auto& [stream, track] : tracks_.all()) {
      if (stream != 0) name_track(track.number, track.name);
      std::vector<TraceSlice> slices;
      ModuleSlices modules(slices);
      for (const TracedWork* work : track.work) {
        if (stream != 0) modules.add(module_of(*work), work->begin, work->end);
        slices.push_back(slice(track.number, *work));
      }
      modules.finish();
      write_slices(std::move(slices), track.number, writer_);
    }
    for (std::size_t i = 0; i < trace_.records().size(); ++i) {
      const TraceRecord& record = trace_.records()[i];
      if (const auto* kernel = std::get_if<KernelRecord>(&record)) mark(*kernel, kernel->name, i);
      if (const auto* call = std::get_if<CollectiveRecord>(&record)) mark(*call, call->op, i);
      if (const auto* event = std::get_if<EventRecord>(&record)) arrow(*event, i);
    }
    return std::move(collectives_);
  }

 private:
  void name_track(int number, const std::string& name) {
    writer_.name("thread_name", number, name);
    writer_.order("thread_sort_index", number, number);
  }

  // The record that the work was issued for, if that is of this kind and has its name.
  template <class Record>
  const Record* record_of(const TracedWork& work) const {
    if (work.record == kNoRecord) return nullptr;
    return std::get_if<Record>(&trace_.records()[work.record]);
  }

  std::string module_of(const TracedWork& work) const {
    if (work.record == kNoRecord) return "";
    const RecordStamp& stamp = trace_.stamps()[work.record];
    return stamp.scope ? stamp.scope->path() : "";
  }

  TraceSlice slice(int track, const TracedWork& work) {
    const std::int64_t begin = work.begin, end = work.end;
    TraceEventWriter::What what{.name = work.name, .category = "work"};
    if (const auto* kernel = record_of<KernelRecord>(work); kernel && kernel->name == work.name) {
      what.category = kKernel;
      what.args = args_of(*kernel, trace_.stamps()[work.record]);
      shown_.insert(work.record);
    }
    if (const auto* call = record_of<CollectiveRecord>(work); call && call->op == work.name) {
      what.category = kCollective;
      what.args = args_of(*call, trace_.stamps()[work.record]);
      shown_.insert(work.record);
      if (call->sequence > 0)
        collectives_.push_back({key_of(*call), track, writer_.shifted(begin)});
    }
    if (const auto* event = record_of<EventRecord>(work); event && is_wait(work, *event)) {
      what.category = kWait;
      what.name = "wait for " + event->name;
      what.args.add("event", static_cast<std::int64_t>(event->event));
    }
    if (work.record != kNoRecord)
      what.args.add_time("queued_us", begin - trace_.stamps()[work.record].issued);
    return {.begin = begin, .end = end, .depth = kWorkDepth, .what = std::move(what)};
  }

  static bool is_wait(const TracedWork& work, const EventRecord& event) {
    return work.name == "synchronize" ||
           (event.action == EventAction::kWait && event.stream == work.stream &&
            (work.name == "wait" || work.name == "event.wait"));
  }

  // Work without times: on a GPU, on the null device, a read by the host.
  template <class Record>
  void mark(const Record& what, const std::string& name, std::size_t record) {
    if (shown_.contains(record)) return;
    writer_.instant(
        kHostTrack, trace_.stamps()[record].issued,
        {.name = name, .category = "issued", .args = args_of(what, trace_.stamps()[record])});
  }

  void arrow(const EventRecord& event, std::size_t record) {
    const std::pair<std::uint64_t, std::uint64_t> mark{event.event, event.mark};
    if (event.action == EventAction::kRecord) {
      if (const TracedWork* work = tracks_.before(event.stream, record)) sources_[mark] = work;
    } else if (event.action == EventAction::kWait && sources_.contains(mark)) {
      const TracedWork& from = *sources_.at(mark);
      const TracedWork* to = tracks_.behind(event.stream, record);
      if (to == nullptr || to->stream == from.stream) return;
      const std::int64_t leaves = inside_end(from);
      const std::int64_t arrives = to->record == record ? inside_end(*to) : to->begin.load();
      if (arrives < leaves) return;
      const std::int64_t id = ++next_arrow_;
      writer_.flow('s', number_of(from), leaves, id, "event");
      writer_.flow('f', number_of(*to), arrives, id, "event");
    }
  }

  // The end is outside of a slice.
  static std::int64_t inside_end(const TracedWork& work) {
    return std::max(work.begin.load(), work.end.load() - 1);
  }

  int number_of(const TracedWork& work) const { return tracks_.all().at(work.stream).number; }

  const ExecutionTrace& trace_;
  TraceEventWriter& writer_;
  StreamTracks tracks_;
  std::int64_t next_arrow_;
  std::set<std::size_t> shown_;  // records that have a slice
  std::vector<TracedCollective> collectives_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, const TracedWork*> sources_;
};

}  // namespace

StreamTracks::StreamTracks(const ExecutionTrace& trace) {
  for (const TracedWork& work : trace.work()) {
    if (work.end == 0) continue;
    Track& track = tracks_[work.stream];
    if (track.number == 0) {
      const int others = static_cast<int>(tracks_.size() - tracks_.count(0));
      track.number = work.stream == 0 ? kHostTrack : kFirstStreamTrack + others;
      track.name = trace.stream_name(work.stream);
    }
    track.work.push_back(&work);
  }
}

const TracedWork* StreamTracks::before(std::uint64_t stream, std::size_t record) const {
  const auto track = tracks_.find(stream);
  if (track == tracks_.end()) return nullptr;
  const auto& work = track->second.work;
  const auto behind = std::partition_point(
      work.begin(), work.end(), [record](const TracedWork* w) { return w->position <= record; });
  return behind == work.begin() ? nullptr : *std::prev(behind);
}

const TracedWork* StreamTracks::behind(std::uint64_t stream, std::size_t record) const {
  const auto track = tracks_.find(stream);
  if (track == tracks_.end()) return nullptr;
  const auto& work = track->second.work;
  const auto behind = std::partition_point(
      work.begin(), work.end(), [record](const TracedWork* w) { return w->position <= record; });
  return behind == work.end() ? nullptr : *behind;
}

std::vector<TracedCollective> write_work(const ExecutionTrace& trace, TraceEventWriter& writer,
                                         int rank) {
  return WorkWriter(trace, writer, rank).write();
}

}  // namespace tessera::distributed
