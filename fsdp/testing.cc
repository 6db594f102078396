#include "tessera/fsdp/testing.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "tessera/distributed/parameters/parameters.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/memory/transfer.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::fsdp {
namespace {

constexpr const char* kWhere = "fsdp.check_sharded_parity";

using Doubles = std::vector<double>;

Doubles elements(const Tensor& x) {
  return to_device(cast(x, DType::kF64), kCpu).to_vector<double>();
}

// The elements of a full tensor in the boxes of `spec`, in local()'s order.
Doubles elements_in_boxes(const Tensor& whole, const nn::ShardSpec& spec) {
  Doubles out;
  for (const nn::ShardBox& box : spec.boxes) {
    Tensor part = whole;
    for (int d = 0; d < whole.ndim(); ++d) part = part.narrow(d, box.offset[d], box.extent[d]);
    const Doubles values = elements(part);
    out.insert(out.end(), values.begin(), values.end());
  }
  return out;
}

// How `actual` differs from `expected`; empty if it does not.
std::string difference(const Doubles& actual, const Doubles& expected, double tolerance) {
  if (actual.size() != expected.size())
    return fmt::format("{} elements, the reference's part has {}", actual.size(), expected.size());
  std::optional<std::size_t> worst;
  double worst_error = 0;
  std::size_t count = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double error = std::abs(actual[i] - expected[i]) / std::max(1.0, std::abs(expected[i]));
    const bool equal = actual[i] == expected[i] || error <= tolerance;  // infinities are equal
    if (equal) continue;
    ++count;
    if (worst && !(error > worst_error) && !std::isnan(error)) continue;
    worst = i;
    worst_error = error;
  }
  if (!worst) return {};
  return fmt::format(
      "{} of {} elements differ, most by {:.3g}: element {} of this rank is {:.17g}, "
      "the reference's {:.17g}",
      count, actual.size(), worst_error, *worst, actual[*worst], expected[*worst]);
}

std::string without_prefixes(std::string name, const std::vector<std::string>& prefixes) {
  for (const std::string& prefix : prefixes) {
    if (prefix.empty()) continue;
    for (std::size_t at = name.find(prefix); at != std::string::npos; at = name.find(prefix, at))
      name.erase(at, prefix.size());
  }
  return name;
}

std::string boxes_text(const std::vector<nn::ShardBox>& boxes) {
  std::string out;
  for (const nn::ShardBox& box : boxes)
    out += fmt::format("{}{} at {}", out.empty() ? "" : ", ", box.extent.str(), box.offset.str());
  return out.empty() ? "nothing" : out;
}

// If a spec has no cuts, the order of sharding is unknown, and its boxes are not checked.
std::string placement_problem(const nn::Parameter& parameter) {
  const distributed::DeviceMesh mesh = distributed::mesh_of(parameter);
  if (!mesh.defined()) {
    return "is not sharded: no mesh. Shard it, or list it in ignored_parameters";
  }
  const nn::ShardSpec& spec = parameter.spec();
  if (spec.cuts.empty() && !spec.is_whole()) return {};
  const distributed::Placements placements = distributed::placements_of(parameter);
  const nn::ShardSpec said = distributed::shard_spec(spec.global_shape, mesh, placements);
  if (said.boxes == spec.boxes && said.sharded_axes == spec.sharded_axes) return {};
  if (said.boxes != spec.boxes) {
    return fmt::format("this rank holds {}, but {} over {} says {}", boxes_text(spec.boxes),
                       distributed::str(placements), mesh.str(), boxes_text(said.boxes));
  }
  return fmt::format("is said to be sharded over [{}], but {} over {} shards it over [{}]",
                     fmt::join(spec.sharded_axes, ", "), distributed::str(placements), mesh.str(),
                     fmt::join(said.sharded_axes, ", "));
}

class Parity {
 public:
  explicit Parity(const ShardedParityOptions& options) : options_(options) {}

  void compare(const nn::NamedParameter& whole, const nn::NamedParameter& part) {
    const std::string name = without_prefixes(part.name, options_.prefixes_to_ignore);
    if (name != whole.name)
      return add(part.name, fmt::format("stands where the reference has \"{}\"", whole.name));
    const std::string problem = kind_problem(whole.parameter, part.parameter);
    if (!problem.empty()) return add(part.name, problem);
    add(part.name, placement_problem(part.parameter));
    add(part.name,
        difference(elements(part.parameter.local().tensor()),
                   elements_in_boxes(whole.parameter.local().tensor(), part.parameter.spec()),
                   options_.tolerance));
    if (options_.gradients) compare_gradients(part.name, whole.parameter, part.parameter);
  }
  void add(const std::string& name, const std::string& text) {
    if (!text.empty()) report_ += fmt::format("\"{}\" {}\n", name, text);
  }
  const std::string& report() const { return report_; }

 private:
  static std::string kind_problem(const nn::Parameter& whole, const nn::Parameter& part) {
    const Shape& shape = part.spec().global_shape;
    if (!whole.spec().is_whole()) return "cannot be compared: the reference's is sharded itself";
    if (whole.spec().global_shape != shape) {
      return fmt::format("has the global shape {}, the reference's {}", shape.str(),
                         whole.spec().global_shape.str());
    }
    if (whole.dtype() == part.dtype()) return {};
    return fmt::format("is stored in {}, the reference's in {}", dtype_name(part.dtype()),
                       dtype_name(whole.dtype()));
  }

  void compare_gradients(const std::string& name, const nn::Parameter& whole,
                         const nn::Parameter& part) {
    const Tensor expected = whole.grad();
    const Tensor actual = part.grad();
    if (expected.defined() != actual.defined()) {
      return add(name, actual.defined() ? "has a gradient, the reference's has none"
                                        : "has no gradient, the reference's has one");
    }
    if (!actual.defined()) return;
    const Shape& shape = part.local().tensor().shape();
    if (actual.shape() != shape) {
      return add(name, fmt::format("has a gradient of shape {}, local() is {}",
                                   actual.shape().str(), shape.str()));
    }
    const std::string text =
        difference(elements(actual), elements_in_boxes(expected, part.spec()), options_.tolerance);
    if (!text.empty()) add(name, "gradient: " + text);
  }

  const ShardedParityOptions& options_;
  std::string report_;
};

}  // namespace

std::string check_sharded_parity(const nn::Module& replicated, const nn::Module& sharded,
                                 const ShardedParityOptions& options) {
  const auto is_ignored = [&options](const nn::Parameter& parameter) {
    const auto& ignored = options.ignored_parameters;
    return std::any_of(ignored.begin(), ignored.end(),
                       [&](const nn::Parameter& other) { return other.same_as(parameter); });
  };
  const std::vector<nn::NamedParameter> whole = replicated.named_parameters();
  const std::vector<nn::NamedParameter> parts = sharded.named_parameters();
  Parity parity(options);
  if (whole.size() != parts.size()) {
    return fmt::format("the sharded model has {} parameters, the reference {}\n", parts.size(),
                       whole.size());
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!is_ignored(parts[i].parameter)) parity.compare(whole[i], parts[i]);
  }
  return parity.report();
}

void assert_sharded_parity(const nn::Module& replicated, const nn::Module& sharded,
                           const ShardedParityOptions& options) {
  const std::string report = check_sharded_parity(replicated, sharded, options);
  TESSERA_CHECK_AS(StateError, report.empty(), kWhere,
                   "the sharded model differs from its reference:\n{}train both alike, and compare "
                   "before zero_grad()",
                   report);
}

}  // namespace tessera::fsdp
