#include "tessera/tensor/trace.h"

#include "tessera/tensor/rank_context.h"

namespace tessera {

std::vector<std::string> Trace::annotations(std::string_view domain) const {
  std::vector<std::string> out;
  for (const TraceRecord& record : records_) {
    const auto* annotation = std::get_if<Annotation>(&record);
    if (annotation == nullptr || annotation->domain != domain) continue;
    out.push_back(annotation->phase + " " + annotation->name);
  }
  return out;
}

void annotate(std::string_view domain, std::string_view name, std::string_view phase) {
  if (Trace* trace = active_trace()) {
    trace->add(Annotation{std::string(domain), std::string(name), std::string(phase)});
  }
}

}  // namespace tessera
