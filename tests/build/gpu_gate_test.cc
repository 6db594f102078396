#include "tessera/tests/support/test_main.h"

#include <catch2/catch.hpp>

using tessera::testing::gpu_gate;
using tessera::testing::GpuGate;

TEST_CASE("a test runs where there are enough GPUs") {
  CHECK(gpu_gate(2, 2, nullptr) == GpuGate::kRun);
  CHECK(gpu_gate(8, 2, "2") == GpuGate::kRun);
}

TEST_CASE("too few GPUs: skipped, unless they were promised") {
  CHECK(gpu_gate(1, 2, nullptr) == GpuGate::kSkip);
  CHECK(gpu_gate(0, 1, "0") == GpuGate::kSkip);
  CHECK(gpu_gate(1, 4, "2") == GpuGate::kSkip);  // two promised, four needed
  CHECK(gpu_gate(1, 2, "2") == GpuGate::kFail);
  CHECK(gpu_gate(0, 1, "2") == GpuGate::kFail);
}
