#pragma once

/// What finalizing checks and makes, for each kind of descriptor, and what can be read afterwards.

#include "tessera/tests/support/emulated_gpu/cudnn/cudnn_engines.h"

namespace tessera::emulated::cudnn {

/// Whether the descriptor is complete and sound. Graphs, engines and plans are made by it.
Refused finalize(Descriptor& descriptor);

/// Attributes that are computed, not set. `room` elements at `to`; `count` is how many there are
/// (were written, where there is room).
Refused read_computed(const Descriptor& descriptor, int attribute, std::int64_t room, void* to,
                      std::int64_t* count);

}  // namespace tessera::emulated::cudnn
