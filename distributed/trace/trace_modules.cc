#include "tessera/distributed/trace/trace_modules.h"

#include <algorithm>
#include <tuple>

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

}  // namespace tessera::distributed
