// Streams and tensors of tests of CUDA graphs, on the first GPU.
#pragma once

#include <optional>
#include <string>

#include "tessera/tensor/memory/transfer.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/streams/stream.h"

namespace tessera::testing {

inline constexpr Device kGpu{DeviceType::kCuda, 0};
inline constexpr std::int64_t kCount = 3000;

inline DeviceStream on_gpu(const std::string& name) {
  return DeviceStream::create(kGpu, StreamKind::kQueued, name);
}

inline Tensor filled(double value) { return full({kCount}, value, {.device = kGpu}); }

// The common value of all elements; nothing if they differ.
inline std::optional<float> value_of(const Tensor& x) {
  const auto values = x.to_vector<float>();
  for (const float value : values)
    if (value != values.front()) return std::nullopt;
  return values.front();
}

}  // namespace tessera::testing
