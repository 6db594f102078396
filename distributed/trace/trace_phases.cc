#include "tessera/distributed/trace/trace_phases.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tessera/tensor/scope_name.h"

namespace tessera::distributed {

std::vector<std::string> module_prefixes(const std::string& path) {
  std::vector<std::string> out;
  for (std::size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', dot + 1))
    out.push_back(path.substr(0, dot));
  if (!path.empty()) out.push_back(path);
  return out;
}

void ModuleSlices::add(const std::string& path, std::int64_t begin, std::int64_t end) {
  if (begin >= last_end_) {
    const std::vector<std::string> wanted = module_prefixes(path);
    std::size_t same = 0;
    while (same < open_.size() && same < wanted.size() && open_[same].path == wanted[same]) ++same;
    close_to(same);
    for (std::size_t i = same; i < wanted.size(); ++i) open_.push_back({wanted[i], begin});
  }
  last_end_ = std::max(last_end_, end);
}

void ModuleSlices::close_to(std::size_t depth) {
  while (open_.size() > depth) {
    const Open& inner = open_.back();
    out_.push_back({.begin = inner.begin,
                    .end = last_end_,
                    .depth = open_.size(),
                    .what = {.name = inner.path, .category = "module"}});
    open_.pop_back();
  }
}

void write_slices(std::vector<TraceSlice> slices, int track, TraceEventWriter& writer) {
  std::stable_sort(slices.begin(), slices.end(), [](const TraceSlice& a, const TraceSlice& b) {
    return std::tie(a.begin, b.end, a.depth) < std::tie(b.begin, a.end, b.depth);
  });
  for (const TraceSlice& slice : slices) writer.complete(track, slice.begin, slice.end, slice.what);
}

namespace {

constexpr std::string_view kEnd = "_end";
constexpr std::int64_t kSpansOfRank = 1'000'000;

struct OpenSlice {
  std::string name;       // as shown
  std::string key;        // what closes it; "" for a module in backward
  std::string path = {};  // of that module
};

std::string key_of(const TraceAnnotation& a, std::string_view phase) {
  return a.domain + "\n" + std::string(phase) + "\n" + a.name;
}

std::string shown_name(const TraceAnnotation& annotation) {
  return annotation.domain == "optimizer" ? annotation.name + " " + annotation.phase
                                          : annotation.name;
}

class Phases {
 public:
  Phases(const ExecutionTrace& trace, TraceEventWriter& writer, int rank)
      : trace_(trace), writer_(writer), rank_(rank) {
    for (const TraceAnnotation& annotation : trace.all<TraceAnnotation>()) {
      if (!annotation.phase.ends_with(kEnd)) continue;
      const std::string phase = annotation.phase.substr(0, annotation.phase.size() - kEnd.size());
      paired_.insert({annotation.domain, phase});
    }
  }

  void write(std::int64_t end) {
    for (std::size_t i = 0; i < trace_.records().size(); ++i) {
      const auto* annotation = std::get_if<TraceAnnotation>(&trace_.records()[i]);
      if (annotation != nullptr) write_one(*annotation, trace_.stamps()[i]);
    }
    while (!open_.empty()) close_top(end);
    for (const auto& [name, id] : spans_) {
      if (id.second) span('e', end, name, id.first);
    }
  }

 private:
  void write_one(const TraceAnnotation& annotation, const RecordStamp& stamp) {
    if (annotation.phase.ends_with(kEnd)) return close(annotation, stamp.issued);
    const std::string module = stamp.scope ? stamp.scope->path() : "";
    if (paired_.contains({annotation.domain, annotation.phase})) {
      if (annotation.phase == "node" && !module.empty()) enter_module(module, stamp.issued);
      return open(annotation, stamp.issued, module);
    }
    writer_.instant(
        kHostTrack, stamp.issued,
        {.name = annotation.phase + " " + annotation.name, .category = annotation.domain.c_str()});
    if (annotation.domain == "fsdp") note_group(annotation, stamp.issued);
  }

  void open(const TraceAnnotation& annotation, std::int64_t at, const std::string& module) {
    open_.push_back({.name = shown_name(annotation), .key = key_of(annotation, annotation.phase)});
    TraceArgs args;
    args.add_text("phase", annotation.phase);
    if (!module.empty()) args.add_text("module", module);
    writer_.begin(kHostTrack, at,
                  {.name = open_.back().name,
                   .category = annotation.domain.c_str(),
                   .args = std::move(args)});
  }

  // Without its beginning, which was before the trace, an end is nothing.
  void close(const TraceAnnotation& annotation, std::int64_t at) {
    const std::string_view phase(annotation.phase.data(), annotation.phase.size() - kEnd.size());
    const std::string key = key_of(annotation, phase);
    std::size_t depth = open_.size();
    while (depth > 0 && open_[depth - 1].key != key) --depth;
    if (depth == 0) return;
    while (open_.size() >= depth) close_top(at);
  }

  void close_top(std::int64_t at) {
    writer_.end(kHostTrack, at, open_.back().name);
    open_.pop_back();
  }

  // Operations of one module run one after another, mostly: the module's slice is around them.
  void enter_module(const std::string& path, std::int64_t at) {
    const std::vector<std::string> wanted = module_prefixes(path);
    std::size_t first = open_.size();
    while (first > 0 && open_[first - 1].key.empty()) --first;
    std::size_t same = 0;
    while (first + same < open_.size() && same < wanted.size() &&
           open_[first + same].path == wanted[same])
      ++same;
    while (open_.size() > first + same) close_top(at);
    for (std::size_t i = same; i < wanted.size(); ++i) {
      open_.push_back({.name = wanted[i] + " backward", .key = "", .path = wanted[i]});
      writer_.begin(kHostTrack, at, {.name = open_.back().name, .category = "backward"});
    }
  }

  void note_group(const TraceAnnotation& annotation, std::int64_t at) {
    auto& [id, is_open] = spans_[annotation.name];
    if (id == 0) id = rank_ * kSpansOfRank + static_cast<std::int64_t>(spans_.size());
    const bool opens = annotation.phase == "unshard";
    if (opens == is_open || (!opens && annotation.phase != "reshard")) return;
    is_open = opens;
    span(opens ? 'b' : 'e', at, annotation.name, id);
  }

  void span(char phase, std::int64_t at, const std::string& group, std::int64_t id) {
    writer_.async(
        phase, at, id,
        {.name = "unsharded " + (group.empty() ? "root" : group), .category = "unsharded"});
  }

  const ExecutionTrace& trace_;
  TraceEventWriter& writer_;
  int rank_;
  std::set<std::pair<std::string, std::string>> paired_;  // domains and phases that end
  std::vector<OpenSlice> open_;
  std::map<std::string, std::pair<std::int64_t, bool>> spans_;  // by group: id, open
};

}  // namespace

void write_phases(const ExecutionTrace& trace, std::int64_t end, TraceEventWriter& writer,
                  int rank) {
  Phases(trace, writer, rank).write(end);
}

}  // namespace tessera::distributed
