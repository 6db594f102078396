// The peak of memory of a backward pass through a cross entropy.
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdlib>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/memory_counters.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tests/autograd/fixtures.h"

namespace tessera::testing {
namespace {

// Bytes of activations that backward allocates beyond the live ones, for logits = h w^T with and
// without another handle.
std::int64_t growth(const Variable& h, const Variable& w, bool held, bool retain_graph = false) {
  const Tensor targets = zeros({h.dim(0)}, {.dtype = DType::kI64, .device = h.device()});
  Variable logits = linear(h, w, Variable());
  const Variable loss = cross_entropy(logits, targets);
  if (!held) logits = Variable();
  MemoryCounters& memory = current_rank_context()->memory();
  memory.reset_peak();
  const std::int64_t before = memory.current()[MemoryCategory::kActivation];
  backward(loss, {.retain_graph = retain_graph});
  return memory.peak()[MemoryCategory::kActivation] - before;
}

TEST_CASE("cross entropy: backward takes one tensor of logits less") {
  constexpr std::int64_t kRows = 128, kClasses = 1000;
  constexpr std::int64_t kNumbers = 4096;  // casts of single numbers, at the peak or not
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const auto fresh = [&](bool held, bool retain_graph) {
      const Variable h(cast(irregular({kRows, 8}), dtype));
      const Variable w(cast(irregular({kClasses, 8}), dtype), true);
      return growth(h, w, held, retain_graph);
    };
    const auto bytes = kRows * kClasses * static_cast<std::int64_t>(dtype_size(dtype));
    const std::int64_t over = fresh(false, false);
    INFO(dtype_name(dtype));
    CHECK(over < bytes / 2);
    CHECK(std::abs(fresh(true, false) - over - bytes) <= kNumbers);
    CHECK(fresh(false, true) >= over + bytes - kNumbers);  // the rest of the graph stays too
  }
}

TEST_CASE("cross entropy: a plan shows it, of a vocabulary that this machine need not hold") {
  const TensorOptions kind{.dtype = DType::kF32, .device = kNull};
  constexpr std::int64_t kRows = 8192, kClasses = 50257, kBytes = kRows * kClasses * 4;
  const Variable h(zeros({kRows, 64}, kind)), w(zeros({kClasses, 64}, kind), true);
  CHECK(growth(h, w, false) < kBytes / 10);
  CHECK(growth(h, w, true) >= kBytes);
}

}  // namespace
}  // namespace tessera::testing
