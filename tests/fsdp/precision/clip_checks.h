#pragma once

/// Clips a sharded model and its reference, and compares everything.

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tessera/distributed/mesh/device_mesh.h"
#include "tessera/nn/training/clip_grad.h"
#include "tessera/tests/fsdp/precision/shard_compare.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/support/collective_records.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// Processes are slow, and norms do not depend on the transport.
inline std::vector<double> norms() {
  if (test_transport() == "gloo") return {3, kInfinity};
  return {1, 2, 3, kInfinity};
}
struct Clipping {
  std::string name;
  double norm_type = 2;
  int all_reduces = 0;  ///< expected number: the axes that parameters are sharded over
};

/// Clips both models' gradients to a third of their norm and compares everything.
inline void clip_both(RankTest& t, const Clipping& c, const nn::Module& sharded,
                      const nn::Module& reference) {
  const std::string what = fmt::format("{}, p = {}", c.name, c.norm_type);
  const double whole =
      nn::grad_norm(reference.parameters(), {.norm_type = c.norm_type}).item<double>();
  t.check(whole > 0, "{}: the norm is {}", what, whole);
  const std::vector<nn::Parameter> parameters = sharded.parameters();
  Tensor norm;
  const auto records = collectives_of(
      [&] { norm = nn::clip_grad_norm(parameters, whole / 3, {.norm_type = c.norm_type}); });
  const double error = std::abs(norm.item<double>() - whole) / whole;
  t.check(error < 1e-12, "{}: norm {} instead of {}", what, norm.item<double>(), whole);
  t.check(count_of(records, "all_reduce") == c.all_reduces, "{}: {} all-reduces, expected {}", what,
          count_of(records, "all_reduce"), c.all_reduces);
  t.check(records.size() == static_cast<std::size_t>(c.all_reduces), "{}: other collectives", what);
  nn::clip_grad_norm(reference.parameters(), whole / 3, {.norm_type = c.norm_type});
  const std::string difference = compare_parts(sharded, reference, 1e-12, true);
  t.check(difference.empty(), "{}: {}", what, difference);
  const double after = nn::grad_norm(parameters, {.norm_type = c.norm_type}).item<double>();
  t.check(std::abs(after - whole / 3) < 1e-5 * whole, "{}: {} after clipping", what, after);
}

inline distributed::DeviceMesh two_by_two(RankTest& t, const std::string& outer,
                                          const std::string& inner) {
  return distributed::DeviceMesh({outer, inner}, {2, 2}, t.world().group(), t.world().device());
}

}  // namespace tessera::testing
