// Tests of axes: round ticks, their labels, positions of values, and empty ranges.
#include "tessera/tools/watch/axis.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

namespace tessera::tools {
namespace {

std::vector<std::string> labels(const Axis& axis) {
  std::vector<std::string> out;
  for (const AxisTick& tick : axis.ticks()) out.push_back(tick.label);
  return out;
}

using Labels = std::vector<std::string>;

TEST_CASE("axis: ticks of a linear axis are round", "[watch]") {
  CHECK(labels(Axis(0, 1500, {.ticks = 8})) ==
        Labels{"0", "200", "400", "600", "800", "1000", "1200", "1400"});
  CHECK(labels(Axis(0, 6e-4, {.to_ticks = true, .ticks = 4})) ==
        Labels{"0", "2e-4", "4e-4", "6e-4"});
  CHECK(labels(Axis(0.5e-5, 1.5e-5, {.ticks = 4})) == Labels{"0.5e-5", "1.0e-5", "1.5e-5"});
  CHECK(labels(Axis(0, 18170, {.to_ticks = true, .ticks = 4})) ==
        Labels{"0", "5k", "10k", "15k", "20k"});
  CHECK(labels(Axis(0, 9e5, {.to_ticks = true, .ticks = 2})) == Labels{"0", "0.5M", "1.0M"});
  CHECK(labels(Axis(-300, 20000, {.to_ticks = true, .ticks = 4})) ==
        Labels{"-10k", "0", "10k", "20k"});
  CHECK(labels(Axis(0, 442.0 * 1048576, {.bytes = true, .to_ticks = true, .ticks = 4})) ==
        Labels{"0 B", "200 MiB", "400 MiB", "600 MiB"});
  CHECK(labels(Axis(1, 3, {.whole_numbers = true, .ticks = 8})) == Labels{"1", "2", "3"});
  CHECK(labels(Axis(1.2, 1.9, {.to_ticks = true, .ticks = 4})) ==
        Labels{"1.2", "1.4", "1.6", "1.8", "2.0"});
}

TEST_CASE("axis: places and ends", "[watch]") {
  const Axis linear(3, 17, {.to_ticks = true, .ticks = 4});
  CHECK(linear.low() == 0);
  CHECK(linear.high() == 20);
  CHECK(linear.place(5) == Approx(0.25));
  const Axis zero(3, 17, {.from_zero = true});
  CHECK(zero.low() == 0);
  CHECK(zero.high() == 17);
  const Axis logarithmic(0.01, 100, {.log_scale = true});
  CHECK(logarithmic.low() < 0.01);
  CHECK(logarithmic.high() > 100);
  CHECK(logarithmic.place(1) == Approx(0.5));
  CHECK(logarithmic.place(logarithmic.high()) == Approx(1));
}

TEST_CASE("axis: ticks of a logarithmic axis", "[watch]") {
  CHECK(labels(Axis(1.6, 10.4, {.log_scale = true})) ==
        Labels{"1.5", "2", "3", "4", "5", "7", "10"});
  CHECK(labels(Axis(0.05, 4, {.log_scale = true})) ==
        Labels{"0.05", "0.1", "0.2", "0.5", "1", "2"});
  CHECK(labels(Axis(0.01, 10, {.log_scale = true})) ==
        Labels{"0.01", "0.03", "0.1", "0.3", "1", "3", "10"});
  CHECK(labels(Axis(1e-12, 2e9, {.log_scale = true})) ==
        Labels{"1e-12", "1e-8", "1e-4", "1", "10k", "100M"});
  CHECK(labels(Axis(3, 4, {.log_scale = true})) == Labels{"3.0", "3.5", "4.0"});
}

// For any range: some ticks within it, in order, and finite positions.
void check_axis(double low, double high, const AxisOptions& options) {
  const Axis axis(low, high, options);
  CAPTURE(low, high, options.log_scale, options.bytes, options.to_ticks);
  REQUIRE(!axis.ticks().empty());
  CHECK(axis.ticks().size() <= 13);
  CHECK(axis.low() < axis.high());
  double before = -INFINITY;
  for (const AxisTick& tick : axis.ticks()) {
    CHECK(tick.value > before);
    before = tick.value;
    CHECK(axis.place(tick.value) >= -1e-6);
    CHECK(axis.place(tick.value) <= 1 + 1e-6);
    CHECK(tick.label.size() <= 12);
  }
  for (const double value : {low, high}) {
    CHECK(axis.place(value) >= -1e-6);
    CHECK(axis.place(value) <= 1 + 1e-6);
  }
}

TEST_CASE("axis: any range has an axis", "[watch]") {
  const std::vector<double> values = {-1e300, -4.2e17, -3, -1e-7, 0,   1e-300, 3.3e-9, 0.1,
                                      1,      1.0001,  7,  1024,  1e4, 123456, 9.9e15, 1e300};
  for (const double low : values)
    for (const double high : values) {
      if (low > high) continue;
      for (const bool bytes : {false, true})
        for (const bool to_ticks : {false, true}) {
          check_axis(low, high, {.bytes = bytes, .to_ticks = to_ticks, .ticks = 4});
          check_axis(low, high, {.bytes = bytes, .from_zero = true, .to_ticks = to_ticks});
          if (low > 0) check_axis(low, high, {.log_scale = true, .bytes = bytes});
        }
    }
}

TEST_CASE("axis: labels of single values", "[watch]") {
  CHECK(plain_label(0) == "0");
  CHECK(plain_label(1.66234) == "1.662");
  CHECK(plain_label(9999) == "9999");
  CHECK(plain_label(18170) == "18.17k");
  CHECK(plain_label(-2.5e6) == "-2.5M");
  CHECK(plain_label(6.25e-4) == "6.25e-4");
  CHECK(plain_label(3e20) == "3e20");
  CHECK(plain_label(NAN) == "not finite");
  CHECK(plain_label(-INFINITY) == "not finite");
  CHECK(bytes_label(0) == "0 B");
  CHECK(bytes_label(1023) == "1023 B");
  CHECK(bytes_label(1536) == "1.5 KiB");
  CHECK(bytes_label(42.5 * 1073741824) == "42.5 GiB");
}

}  // namespace
}  // namespace tessera::tools
