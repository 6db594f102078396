#pragma once

/// The phases of a step, from the annotations of its trace in their order.

#include <string>

#include "tessera/tensor/profile/profile.h"
#include "tessera/tensor/trace.h"

namespace tessera {

class StepPhases {
 public:
  /// The next annotation. An end without its beginning, which was before the step, is ignored.
  void follow(const TraceAnnotation& annotation);
  ProfilePhase current() const;

 private:
  int passes_ = 0;      // of backward
  int recomputes_ = 0;  // inside of them
  int updates_ = 0;     // by optimizers
  bool in_forward_ = false;
};

}  // namespace tessera
