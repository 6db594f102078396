#include "tessera/tensor/profile/step_phases.h"

#include <algorithm>
#include <string_view>

namespace tessera {
namespace {

// 1 where the phase begins, -1 where it ends, else 0.
int change_of(const TraceAnnotation& annotation, std::string_view phase) {
  const std::string_view text = annotation.phase;
  if (!text.starts_with(phase)) return 0;
  if (text.size() == phase.size()) return 1;
  return text.substr(phase.size()) == "_end" ? -1 : 0;
}

void count(int& open, int change) { open = std::max(0, open + change); }

}  // namespace

void StepPhases::follow(const TraceAnnotation& annotation) {
  if (annotation.domain == "module") {
    if (change_of(annotation, "forward") == 1 && passes_ == 0 && updates_ == 0) in_forward_ = true;
  } else if (annotation.domain == "autograd") {
    count(passes_, change_of(annotation, "pass"));
    if (annotation.name == "recompute") count(recomputes_, change_of(annotation, "node"));
    if (passes_ > 0) in_forward_ = false;
  } else if (annotation.domain == "optimizer") {
    count(updates_, change_of(annotation, "step"));
    if (updates_ > 0) in_forward_ = false;
  }
}

ProfilePhase StepPhases::current() const {
  if (updates_ > 0) return ProfilePhase::kOptimizer;
  if (recomputes_ > 0) return ProfilePhase::kRecompute;
  if (passes_ > 0) return ProfilePhase::kBackward;
  return in_forward_ ? ProfilePhase::kForward : ProfilePhase::kOther;
}

}  // namespace tessera
