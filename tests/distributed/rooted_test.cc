// reduce, gather and scatter, and every reduction of every dtype.
#include <catch2/catch.hpp>

#include "tessera/distributed/collectives.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tests/distributed/values.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using distributed::ReduceOp;

const std::vector<std::vector<std::int64_t>> kLists = {{1}, {}, {0, 7}, {5000}, {9, 4097, 2, 0}};

template <class T>
Tensor filled(std::int64_t count, T value) {
  return Tensor::from_vector<T>(std::vector<T>(static_cast<std::size_t>(count), value), {count});
}

template <class T>
Tensor reduced(int size, const ReduceOp& op, std::size_t member, std::int64_t count) {
  std::vector<T> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(reduced_value<T>(size, op, member, i));
  return Tensor::from_vector<T>(values, {count});
}

// Every rank's tensors of a member, one behind the other.
template <class T>
Tensor gathered(int size, std::size_t member, std::int64_t count) {
  std::vector<T> values;
  for (int r = 0; r < size; ++r) {
    for (std::int64_t i = 0; i < count; ++i) values.push_back(rank_value<T>(r, member, i));
  }
  return Tensor::from_vector<T>(values, {count * size});
}

template <class T>
void reduce_list(RankTest& t, const std::vector<std::int64_t>& counts, int root) {
  std::vector<Tensor> tensors;
  for (std::size_t m = 0; m < counts.size(); ++m)
    tensors.push_back(rank_tensor<T>(t.rank(), m, counts[m]));
  reduce(t.group(), tensors, root, ReduceOp::kSum, "list");
  for (std::size_t m = 0; m < counts.size(); ++m) {
    const Tensor expected = t.rank() == root ? reduced<T>(t.size(), ReduceOp::kSum, m, counts[m])
                                             : rank_tensor<T>(t.rank(), m, counts[m]);
    t.check_equal(tensors[m], expected, fmt::format("reduce to {}, member {}", root, m));
  }
}

template <class T>
void gather_list(RankTest& t, const std::vector<std::int64_t>& counts, int root) {
  std::vector<Tensor> inputs, outputs;
  for (std::size_t m = 0; m < counts.size(); ++m) {
    inputs.push_back(rank_tensor<T>(t.rank(), m, counts[m]));
    if (t.rank() == root) outputs.push_back(filled<T>(counts[m] * t.size(), T(77)));
  }
  gather(t.group(), inputs, outputs, root, "list");
  for (std::size_t m = 0; m < outputs.size(); ++m)
    t.check_equal(outputs[m], gathered<T>(t.size(), m, counts[m]),
                  fmt::format("gather to {}, member {}", root, m));
}

template <class T>
void scatter_list(RankTest& t, const std::vector<std::int64_t>& counts, int root) {
  std::vector<Tensor> inputs, outputs;
  for (std::size_t m = 0; m < counts.size(); ++m) {
    outputs.push_back(filled<T>(counts[m], T(77)));
    if (t.rank() == root) inputs.push_back(gathered<T>(t.size(), m, counts[m]));
  }
  scatter(t.group(), inputs, outputs, root, "list");
  for (std::size_t m = 0; m < outputs.size(); ++m)
    t.check_equal(outputs[m], rank_tensor<T>(t.rank(), m, counts[m]),
                  fmt::format("scatter from {}, member {}", root, m));
}

void run_all(RankTest& t) {
  for (const std::vector<std::int64_t>& counts : kLists) {
    for (int root = 0; root < t.size(); root += std::max(1, t.size() - 1)) {
      reduce_list<float>(t, counts, root);
      reduce_list<std::int64_t>(t, counts, root);
      gather_list<double>(t, counts, root);
      gather_list<std::uint8_t>(t, counts, root);
      scatter_list<float>(t, counts, root);
      scatter_list<std::int32_t>(t, counts, root);
    }
  }
}

// NCCL adds floats in an order of its own, and may round 16-bit sums on the way.
void check_reduced(RankTest& t, const Tensor& actual, const Tensor& expected,
                   const std::string& what) {
  const bool rounded = test_transport() == "nccl" && is_floating(expected.dtype());
  if (!rounded) {
    t.check_equal(actual, expected, what);
    return;
  }
  const double step = dtype_size(expected.dtype()) == 2 ? 0.02 : 1e-5;
  t.check_close(actual, expected, {.rtol = step, .atol = 200 * step}, what);
}

template <class T>
void reductions_of(RankTest& t) {
  const std::int64_t part = 3, count = part * t.size();
  std::vector<ReduceOp> ops = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct};
  if constexpr (std::is_floating_point_v<T>) {
    ops.push_back(ReduceOp::kAverage);
    ops.push_back(ReduceOp::premul_sum(0.3));
  }
  for (const ReduceOp& op : ops) {
    const std::string what = fmt::format("{} of {}", op.name(), dtype_name(dtype_of<T>));
    const Tensor whole = rank_tensor<T>(t.rank(), 0, count);
    const Tensor mine = filled<T>(part, T(1));
    reduce_scatter(t.group(), std::vector{whole}, std::vector{mine}, op);
    const Tensor expected = reduced<T>(t.size(), op, 0, count);
    const Tensor share = contiguous(expected.slice(0, t.rank() * part, (t.rank() + 1) * part));
    all_reduce(t.group(), std::vector{whole}, op);
    check_reduced(t, mine, share, "reduce_scatter, " + what);
    check_reduced(t, whole, expected, "all_reduce, " + what);
  }
}

}  // namespace

TESSERA_RANK_TEST("reduce, gather and scatter move what their root says", "[rooted]") {
  run_all(t);
}

TESSERA_RANK_TEST_WITH("rooted collectives on a queued stream give the same values", "[rooted]",
                       {.cpu_compute = StreamKind::kQueued}) {
  run_all(t);
}

TESSERA_RANK_TEST("every reduction of every dtype, in rank order", "[rooted]") {
  reductions_of<float>(t);
  reductions_of<double>(t);
  reductions_of<std::int64_t>(t);
  reductions_of<std::int32_t>(t);
  reductions_of<std::uint8_t>(t);  // modulo 256
}

// What every rank's x adds up to, in f32, rounded once.
Tensor reduced_in_f32(int size, std::int64_t count, DType dtype, const ReduceOp& op) {
  Tensor expected = zeros({count});
  for (int r = 0; r < size; ++r) {
    const Tensor theirs = cast(cast(rank_tensor<float>(r, 0, count), dtype), DType::kF32);
    const Tensor scaled = op.kind == ReduceOp::Kind::kPremulSum ? mul(theirs, 0.5) : theirs;
    expected = r == 0 ? scaled : add(expected, scaled);
  }
  if (op.kind == ReduceOp::Kind::kAverage) expected = div(expected, double(size));
  return cast(expected, dtype);
}

TESSERA_RANK_TEST("16-bit floats are combined in f32 and rounded once", "[rooted]") {
  // Few elements are sent packed, many by themselves.
  for (const std::int64_t rows : {5, 9001}) {
    for (DType dtype : {DType::kBF16, DType::kF16}) {
      const std::int64_t count = rows * t.size();
      const Tensor mine = cast(rank_tensor<float>(t.rank(), 0, count), dtype);
      for (const ReduceOp& op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::premul_sum(0.5)}) {
        const Tensor expected = reduced_in_f32(t.size(), count, dtype, op);
        const Tensor part = Tensor::empty({rows}, {.dtype = dtype});
        reduce_scatter(t.group(), std::vector{mine}, std::vector{part}, op);
        const std::int64_t first = rows * t.rank();
        check_reduced(t, part, clone(expected.slice(0, first, first + rows)), op.name());
        const Tensor x = clone(mine);
        all_reduce(t.group(), std::vector{x}, op);
        check_reduced(t, x, expected, op.name());
      }
    }
  }
}

TESSERA_RANK_TEST("bools combine by or and and", "[rooted]") {
  const bool last = t.rank() == t.size() - 1;
  for (const ReduceOp& op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kProduct}) {
    const Tensor x = Tensor::from_vector<bool>({true, last, false}, {3});
    all_reduce(t.group(), std::vector{x}, op);
    const bool any = op == ReduceOp::kSum || op == ReduceOp::kMax;
    t.check(x.to_vector<bool>() == std::vector<bool>{true, any || t.size() == 1, false}, "{}: {}",
            op.name(), x.str());
  }
}

TESSERA_RANK_TEST("a NaN wins a minimum", "[rooted]") {
  const float mine = t.rank() == 0 ? std::nanf("") : -1.0f;
  const Tensor x = Tensor::from_vector<float>({mine}, {1});
  all_reduce(t.group(), std::vector{x}, ReduceOp::kMin);
  t.check(std::isnan(x.to_vector<float>()[0]), "the NaN was lost");
}

TESSERA_RANK_TEST("what rooted collectives refuse, and that they are counted", "[rooted]") {
  distributed::ProcessGroup& group = t.group();
  const Tensor x = rank_tensor<float>(t.rank(), 0, 4);
  const std::int64_t before = distributed::collective_counters().bytes_sent;
  reduce(group, std::vector{x}, 0);
  t.check(distributed::collective_counters().bytes_sent - before == (t.rank() == 0 ? 0 : 16),
          "reduce sent other bytes");
  t.check_throws<InvalidArgument>(fmt::format("root {} is not a rank", t.size()),
                                  [&] { reduce(group, std::vector{x}, t.size()); });
  if (t.rank() == 0) {
    t.check_throws<InvalidArgument>("[gather] rank 0: 1 inputs but 0 outputs",
                                    [&] { gather(group, std::vector{x}, {}, 0); });
    t.check_throws<InvalidArgument>("[scatter] rank 0: 1 outputs but 0 inputs",
                                    [&] { scatter(group, {}, std::vector{x}, 0); });
  } else {
    t.check_throws<InvalidArgument>("only the root, rank 0, passes outputs",
                                    [&] { gather(group, std::vector{x}, std::vector{x}, 0); });
    t.check_throws<InvalidArgument>("only the root, rank 0, passes inputs",
                                    [&] { scatter(group, std::vector{x}, std::vector{x}, 0); });
  }
  t.check_throws<InvalidArgument>("premul_sum(0.5) of i32 tensors makes fractions", [&] {
    reduce(group, std::vector{rank_tensor<std::int32_t>(0, 0, 2)}, 0, ReduceOp::premul_sum(0.5));
  });
  barrier(group);
  gather_list<float>(t, {3}, 0);
}

}  // namespace tessera::testing
