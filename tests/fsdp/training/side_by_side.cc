#include "tessera/tests/fsdp/training/side_by_side.h"

namespace tessera::testing {

Tensor part_of(const Tensor& whole, const nn::Parameter& parameter) {
  const nn::ShardBox& box = parameter.spec().boxes.front();
  Tensor part = whole;
  for (int d = 0; d < whole.ndim(); ++d) {
    const auto i = static_cast<std::size_t>(d);
    part = part.slice(d, box.offset[i], box.offset[i] + box.extent[i]);
  }
  return contiguous(part);
}

std::vector<double> numbers_of(const Tensor& x) { return cast(x, DType::kF64).to_vector<double>(); }

double largest(const Tensor& x) {
  double worst = 0;
  for (const double value : numbers_of(x)) worst = std::max(worst, std::abs(value));
  return worst;
}

double relative_error(const Tensor& a, const Tensor& b, const Tensor& whole) {
  if (a.shape() != b.shape()) return INFINITY;
  const std::vector<double> left = numbers_of(a), right = numbers_of(b);
  double worst = 0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    const double error = std::abs(left[i] - right[i]);
    if (!(error <= worst)) worst = std::isnan(error) ? INFINITY : error;
  }
  return worst == 0 ? 0 : worst / largest(whole);
}

std::string first_difference(const nn::Module& sharded, const nn::Module& reference,
                             double tolerance, bool gradients) {
  const auto compare = [tolerance](const Tensor& a, const Tensor& whole,
                                   const nn::Parameter& parameter) -> std::string {
    const Tensor b = part_of(whole, parameter);
    if (tolerance == 0) return all_equal(a, b).message;
    const double error = relative_error(a, b, whole);
    return error <= tolerance ? std::string() : fmt::format("differs by {:.2g}", error);
  };
  const auto left = sharded.named_parameters(), right = reference.named_parameters();
  if (left.size() != right.size()) return "the models have different numbers of parameters";
  for (std::size_t i = 0; i < left.size(); ++i) {
    const nn::Parameter &a = left[i].parameter, &b = right[i].parameter;
    if (left[i].name != right[i].name) return left[i].name + " against " + right[i].name;
    std::string text = compare(a.local().tensor(), b.local().tensor(), a);
    if (!text.empty()) return left[i].name + " " + text;
    if (!gradients) continue;
    if (a.grad().defined() != b.grad().defined())
      return left[i].name + ": only " + (a.grad().defined() ? "it" : "the reference") +
             " has a gradient";
    if (a.grad().defined()) text = compare(a.grad(), b.grad(), a);
    if (!text.empty()) return "the gradient of " + left[i].name + " " + text;
  }
  return {};
}

DataRank data_rank(const distributed::ProcessGroup& group) {
  return {.size = group.size(), .rank = group.rank()};
}

Tensor rows_of_rank(const Tensor& batch, const DataRank& ranks) {
  const distributed::Chunk chunk = distributed::chunk_of(batch.dim(0), ranks.size, ranks.rank);
  return contiguous(batch.slice(0, chunk.begin, chunk.end));
}

Variable half_squares(const Variable& y, std::int64_t rows, int ranks) {
  return mul(sum(square(y)), 0.5 * ranks / static_cast<double>(rows));
}

void check_mean_loss(RankTest& t, const SideBySide& run, const Variable& loss,
                     const Variable& expected) {
  const Tensor mean = clone(loss.tensor());
  distributed::all_reduce(t.group(), std::span(&mean, 1), distributed::ReduceOp::kSum, "loss");
  div_(mean, t.size());
  const double error = relative_error(mean, expected.tensor(), expected.tensor());
  t.check(error <= run.tolerance, "{}: the loss differs by {:.2g}", run.what, error);
}

void train_side_by_side(RankTest& t, const SideBySide& run) {
  nn::optim::SGD sharded_sgd(run.sharded.parameters(), kSgd);
  nn::optim::SGD reference_sgd(run.reference.parameters(), kSgd);
  const auto check = [&](double tolerance, const std::string& when) {
    const std::string difference = first_difference(run.sharded, run.reference, tolerance);
    return t.check(difference.empty(), "{}, {}: {}", run.what, when, difference);
  };
  check(0, "at the start");
  for (int step = 0; step < run.steps; ++step) {
    for (int pass = 0; pass < run.passes; ++pass) {
      if (run.before_pass) run.before_pass(pass);
      const Variable loss = run.sharded_loss(step, pass), expected = run.reference_loss(step, pass);
      check_mean_loss(t, run, loss, expected);
      backward(loss);
      backward(expected);
    }
    if (run.before_optimizer) run.before_optimizer(step);
    if (!check(run.tolerance, "step " + std::to_string(step))) return;
    sharded_sgd.step();
    reference_sgd.step();
    sharded_sgd.zero_grad();
    reference_sgd.zero_grad();
  }
  check(run.tolerance, "at the end");
}

void initialize_both(nn::Module& sharded, nn::Module& reference, std::uint64_t seed) {
  nn::initialize(sharded, {.seed = seed});
  nn::initialize(reference, {.seed = seed});
}

}  // namespace tessera::testing
