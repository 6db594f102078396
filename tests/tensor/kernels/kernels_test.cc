// The choice of an instruction set, layouts before a launch, and the trace records of a launch.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <catch2/catch.hpp>

#include "tessera/tensor/error.h"
#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/layout.h"
#include "tessera/tensor/kernels/math/scalar_trig.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/ops/ops_support.h"

namespace tessera {
namespace {

using namespace testing;

constexpr CpuFlags kHaswell = {.avx2 = true,
                               .fma = true,
                               .bmi1 = true,
                               .bmi2 = true,
                               .f16c = true,
                               .lzcnt = true,
                               .movbe = true};

CpuFlags with_avx512(CpuFlags flags) {
  flags.avx512f = flags.avx512bw = flags.avx512cd = flags.avx512dq = flags.avx512vl = true;
  return flags;
}

TEST_CASE("choose_cpu_isa: by flags alone, naming what is missing") {
  CHECK(choose_cpu_isa(kHaswell) == CpuIsa::kX86V3);
  CHECK(choose_cpu_isa(with_avx512(kHaswell)) == CpuIsa::kX86V4);
  CHECK(std::string(cpu_isa_name(CpuIsa::kX86V3)) == "x86-64-v3");
  CHECK(std::string(cpu_isa_name(CpuIsa::kX86V4)) == "x86-64-v4");
  // All five parts of AVX-512 are needed; the first CPUs with it had two.
  for (bool CpuFlags::*flag : {&CpuFlags::avx512f, &CpuFlags::avx512bw, &CpuFlags::avx512cd,
                               &CpuFlags::avx512dq, &CpuFlags::avx512vl}) {
    CpuFlags flags = with_avx512(kHaswell);
    flags.*flag = false;
    CHECK(choose_cpu_isa(flags) == CpuIsa::kX86V3);
  }
  CpuFlags flags = kHaswell;
  flags.fma = flags.movbe = false;
  CHECK(thrown<DeviceError>([&] { choose_cpu_isa(flags); }) ==
        "[cpu_table] this CPU lacks fma, movbe; the kernels need x86-64-v3, which x86 CPUs since "
        "2013-2015 have");
  CHECK(thrown<DeviceError>([&] { choose_cpu_isa(with_avx512({})); }) ==
        "[cpu_table] this CPU lacks avx2, fma, bmi1, bmi2, f16c, lzcnt, movbe; the kernels need "
        "x86-64-v3, which x86 "
        "CPUs since 2013-2015 have");
}

TEST_CASE("choose_cpu_isa: what TESSERA_CPU_ISA asks for") {
  const CpuFlags wide = with_avx512(kHaswell);
  CHECK(choose_cpu_isa(wide, "v3") == CpuIsa::kX86V3);
  CHECK(choose_cpu_isa(wide, "v4") == CpuIsa::kX86V4);
  CHECK(choose_cpu_isa(kHaswell, "v3") == CpuIsa::kX86V3);
  CHECK(thrown<DeviceError>([&] { choose_cpu_isa(wide, "avx2"); }) ==
        "[cpu_table] TESSERA_CPU_ISA is \"avx2\"; say v3 or v4, or unset it");
  CpuFlags flags = wide;
  flags.avx512bw = flags.avx512vl = false;
  CHECK(thrown<DeviceError>([&] { choose_cpu_isa(flags, "v4"); }) ==
        "[cpu_table] TESSERA_CPU_ISA is \"v4\", but this CPU lacks avx512bw, avx512vl; say v3, or "
        "unset it");
  CHECK(thrown<DeviceError>([&] {
          choose_cpu_isa({}, "v3");
        }).starts_with("[cpu_table] this CPU lacks avx2"));
  CHECK(cpu_isa() == choose_cpu_isa(detect_cpu_flags(), requested_cpu_isa()));
}

TEST_CASE("cpu_table: every kernel has an entry point") {
  CHECK(std::apply([](const auto&... entry) { return ((entry.run != nullptr) && ...); },
                   cpu_table()));
}

TEST_CASE("merge_dims: extents of 1 go, neighbours merge, order stays") {
  Shape shape{2, 1, 3, 4}, a{12, 99, 4, 1}, b{12, 0, 4, 1};
  merge_dims(shape, {&a, &b});
  CHECK(shape == Shape{24});
  CHECK(a == Shape{1});
  Shape broadcast{2, 3, 4}, x{12, 4, 1}, y{0, 4, 1};
  merge_dims(broadcast, {&x, &y});
  CHECK(broadcast == Shape{2, 12});
  CHECK(x == Shape{12, 1});
  CHECK(y == Shape{0, 1});
  Shape none{1, 1}, none_strides{5, 5};
  merge_dims(none, {&none_strides});
  CHECK(none == Shape{});
  Shape empty{3, 0}, empty_strides{0, 1};
  merge_dims(empty, {&empty_strides});
  CHECK(empty.numel() == 0);
}

TEST_CASE("sort_and_merge_dims: the first operand is walked as it lies in memory") {
  Shape shape{3, 4}, out{1, 3}, in{1, 3};
  sort_and_merge_dims(shape, {&out, &in});
  CHECK(shape == Shape{12});
  CHECK(out == Shape{1});
  Shape mixed{3, 4}, first{1, 3}, second{4, 1};
  sort_and_merge_dims(mixed, {&first, &second});
  CHECK(mixed == Shape{4, 3});
  CHECK(first == Shape{3, 1});
  CHECK(second == Shape{1, 4});
}

TEST_CASE("a traced launch lists what it reads and writes") {
  with_threads(1, [] {
    const Tensor a = ones({2, 3}), b = ones({3});
    ExecutionTrace trace;
    current_rank_context()->set_trace(&trace);
    const Tensor y = add(a, b);
    current_rank_context()->set_trace(nullptr);
    const auto records = trace.all<KernelRecord>();
    REQUIRE(records.size() == 1);
    CHECK(records[0].name == "binary");
    REQUIRE(records[0].reads.size() == 2);
    REQUIRE(records[0].writes.size() == 1);
    CHECK(records[0].reads[0].storage == a.storage().id());
    CHECK(records[0].reads[1].strides == Shape{0, 1});
    CHECK(records[0].writes[0].storage == y.storage().id());
    return 0;
  });
}

TEST_CASE("operations on released storage say so") {
  const Tensor x = Tensor::empty_named({3}, {}, MemoryCategory::kGathered, "group.0", false);
  const std::string message = thrown<StateError>([&] { relu(x); });
  INFO(message);
  CHECK(message.find("group.0") != std::string::npos);
}

}  // namespace

namespace {

// sin and cos in f32: the reduction of angles of every size.

// Compared with f64, rounded: the last bit may differ if f64 lies almost halfway between two f32.
bool is_near(float value, double exact) {
  const auto rounded = static_cast<float>(exact);
  const float next = std::nextafter(rounded, value);
  return std::bit_cast<std::uint32_t>(value) == std::bit_cast<std::uint32_t>(rounded) ||
         (value == next &&
          std::abs(exact - 0.5 * (double{value} + rounded)) < 1e-10 * std::abs(exact));
}

bool are_near(float x) {
  return is_near(scalar::sin(x), std::sin(double{x})) &&
         is_near(scalar::cos(x), std::cos(double{x}));
}

TEST_CASE("scalar trig: finite angles of every size") {
  std::int64_t wrong = 0;
  // 9973 is coprime to powers of 2.
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 9973) {
    const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (std::isfinite(x) && !are_near(x)) ++wrong;
  }
  CHECK(wrong == 0);
}

TEST_CASE("scalar trig: next to multiples of a quarter turn") {
  std::int64_t wrong = 0;
  for (std::int64_t n = 1; n < std::int64_t{1} << 50; n += 1 + n / 64) {
    const auto x = static_cast<float>(static_cast<double>(n) * 1.5707963267948966);
    const float infinity = std::numeric_limits<float>::infinity();
    for (float near : {std::nextafter(x, 0.0f), x, std::nextafter(x, infinity), -x})
      wrong += are_near(near) ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("scalar trig: zeros, the change of reductions, no finite angle") {
  CHECK(std::signbit(scalar::sin(-0.0f)));
  CHECK(!std::signbit(scalar::sin(0.0f)));
  CHECK(scalar::cos(-0.0f) == 1.0f);
  for (float x : {0x1p30f, 0x1.fffffep29f, 0x1.000002p30f, 0x1.fffffep127f, -0x1p30f, 0x1p-149f})
    CHECK(are_near(x));
  const float infinity = std::numeric_limits<float>::infinity();
  for (float x : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    CHECK(std::isnan(scalar::sin(x)));
    CHECK(std::isnan(scalar::cos(x)));
  }
}

}  // namespace
}  // namespace tessera
