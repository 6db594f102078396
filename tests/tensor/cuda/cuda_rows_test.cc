// How CUDA kernels distribute rows and lines, and how reductions are split: pure functions, without
// a GPU.
#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "tessera/tensor/kernels/cuda/reductions/reduce_plan.h"
#include "tessera/tensor/kernels/cuda/reductions/row_plan.h"
#include "tessera/tensor/kernels/row_norm.h"

namespace tessera {
namespace {

alignas(16) float memory[64];

ConstView view_of(const Shape& shape, const Shape& strides, std::int64_t first = 0,
                  DType dtype = DType::kF32) {
  return {.data = memory + first, .dtype = dtype, .shape = shape, .strides = strides};
}

ReduceKernel::Args reduction(const Shape& shape, const Shape& strides, int kept) {
  ReduceKernel::Args args;
  args.x = view_of(shape, strides);
  args.kept_dims = kept;
  return args;
}

}  // namespace

TEST_CASE("row walks: merged dims, and where each row begins") {
  const cuda::RowWalk whole = cuda::make_row_walk({4, 5, 6}, {30, 6, 1}, 0, 2);
  CHECK(whole.ndim == 1);
  CHECK(cuda::row_offset(whole, 19) == 114);
  const cuda::RowWalk walk = cuda::make_row_walk({4, 1, 5, 6}, {7, 9, 100, 1}, 0, 3);
  CHECK(walk.ndim == 2);
  for (std::int64_t row = 0; row < 20; ++row)
    CHECK(cuda::row_offset(walk, row) == row / 5 * 7 + row % 5 * 100);
  CHECK(cuda::row_offset(cuda::make_row_walk({6}, {1}, 0, 0), 0) == 0);
  const std::int64_t far = std::int64_t{3} << 32;
  CHECK(cuda::row_offset(cuda::make_row_walk({far + 1, 8}, {8, 1}, 0, 1), far) == 8 * far);
}

TEST_CASE("row operands: packed where each row begins at 16 bytes") {
  CHECK(cuda::row_operand(view_of({3, 8}, {8, 1})).packed);
  CHECK(cuda::row_operand(view_of({3, 5}, {8, 1})).packed);
  CHECK_FALSE(cuda::row_operand(view_of({3, 6}, {6, 1})).packed);
  CHECK_FALSE(cuda::row_operand(view_of({3, 8}, {8, 1}, 1)).packed);
  CHECK_FALSE(cuda::row_operand(view_of({8, 3}, {1, 8})).packed);
  const cuda::RowOperand strided = cuda::row_operand(view_of({8, 3}, {1, 8}));
  CHECK(strided.step == 8);
}

TEST_CASE("row plans: every pack of a row is one thread's, whatever the length") {
  for (std::int64_t length : {0, 1, 3, 31, 1024, 1025, 32768, 32769, 1000000}) {
    for (const int held : {2, 4, 8}) {
      const cuda::RowPlan plan =
          cuda::plan_rows(100, length, {.pack = 4, .held_packs = held, .wanted_packs = held / 2});
      CHECK(plan.packs == (length + 3) / 4);
      CHECK(plan.lanes == 1 << plan.lane_bits);
      CHECK((plan.lanes >= 1 && plan.lanes <= 1024));
      CHECK(plan.threads() % 32 == 0);
      CHECK(plan.threads() % plan.lanes == 0);
      CHECK(plan.threads() / plan.lanes == plan.rows_per_block());
      CHECK(plan.blocks() * plan.rows_per_block() >= 100);
      CHECK((plan.blocks() - 1) * plan.rows_per_block() < 100);
      CHECK(plan.held == (plan.packs <= std::int64_t{plan.lanes} * held));
    }
  }
  CHECK(cuda::plan_rows(5, 32768, {.pack = 4, .held_packs = 8, .wanted_packs = 4}).held);
  CHECK_FALSE(cuda::plan_rows(5, 32772, {.pack = 4, .held_packs = 8, .wanted_packs = 4}).held);
}

TEST_CASE("reduce plans: rows, columns, and when packs are read") {
  const cuda::ReducePlan whole = cuda::plan_reduce(reduction({1 << 26}, {1}, 0));
  CHECK_FALSE(whole.columns);
  CHECK(whole.packed);
  CHECK(whole.blocks == 65536);
  CHECK(whole.totals == 1024);
  CHECK(whole.units == 64);
  CHECK(whole.group_bits == 6);
  CHECK(cuda::reduce_row_tiles(whole) == 1024);
  const cuda::ReducePlan few = cuda::plan_reduce(reduction({3, 5000}, {5000, 1}, 1));
  CHECK_FALSE(few.packed);
  CHECK(few.blocks == 5);
  CHECK(few.group_bits == 3);
  CHECK(few.units == 16);
  CHECK(cuda::reduce_row_tiles(few) == 2);
  const cuda::ReducePlan columns = cuda::plan_reduce(reduction({4096, 3000}, {1, 4096}, 1));
  CHECK(columns.columns);
  CHECK(columns.packed);
  CHECK(columns.totals == 3);
  CHECK(columns.side_bits == 5);
  CHECK_FALSE(cuda::plan_reduce(reduction({6, 30}, {1, 6}, 1)).packed);
  const cuda::ReducePlan none = cuda::plan_reduce(reduction({4, 0}, {0, 1}, 1));
  CHECK(none.blocks == 1);
  CHECK(none.totals == 1);
}

TEST_CASE("reduce plans: every block is one unit's") {
  for (const std::int64_t outputs : {1, 3, 100}) {
    for (const std::int64_t n : {5, 1024, 5000, 70000, 300000}) {
      const cuda::ReducePlan plan = cuda::plan_reduce(reduction({outputs, n}, {n, 1}, 1));
      const std::int64_t units = cuda::reduce_row_tiles(plan) * plan.units;
      CHECK(units >= outputs * plan.blocks);
      CHECK((plan.group_bits == 6 || plan.totals == 1));
      CHECK((std::int64_t{plan.totals} << plan.group_bits) >= plan.blocks);
      CHECK(plan.units % (1 << plan.group_bits) == 0);
      const ReduceKernel::Args args = reduction({outputs, n}, {n, 1}, 1);
      const std::size_t needed =
          plan.totals == 1 ? 0 : static_cast<std::size_t>(plan.totals * outputs) * 8;
      CHECK(ReduceKernel::cuda_workspace(args) >= needed);
    }
  }
}

TEST_CASE("fold plans: groups of 64, and groups of those") {
  CHECK(cuda::plan_fold(1).left == 1);
  CHECK(cuda::plan_fold(64).groups == 1);
  CHECK(cuda::plan_fold(65).groups == 64);
  CHECK(cuda::plan_fold(4096).left == 1);
  CHECK(cuda::plan_fold(4097).left == 2);
  CHECK(cuda::plan_fold(65536).left == 16);
}

TEST_CASE("line chunks: all elements, few chunks, none too short") {
  for (const std::int64_t lines : {1, 3, 1000}) {
    for (const std::int64_t n : {0, 1, 1000, 1024, 5000, 3000000}) {
      for (const bool beside : {false, true}) {
        const Shape strides = beside ? Shape{1, lines} : Shape{n, 1};
        const LineChunks cut = line_chunks({lines, n}, strides);
        CHECK(cut.side_by_side == (beside && n > 1 && lines > 1));
        CHECK(cut.chunk * cut.chunks >= n);
        CHECK((cut.chunks == 1 || cut.chunk * (cut.chunks - 1) < n));
        CHECK((cut.chunks == 1 || cut.chunk >= 1024));
        CHECK(cut.chunks <= 2048);
        const cuda::LinePlan plan = cuda::plan_lines({lines, n}, strides, 8);
        CHECK(plan.lanes == 1 << plan.lane_bits);
        CHECK(plan.blocks() * (plan.threads() / plan.lanes) >= lines * cut.chunks);
      }
    }
  }
}

TEST_CASE("chunks of samples of a norm's gradients: all samples, at most 64 chunks") {
  for (const std::int64_t samples : {0, 1, 15, 16, 17, 1000, 100000}) {
    for (const std::int64_t channels : {1, 127, 4096, 200000}) {
      RowNormBackwardKernel::Args args;
      args.shape = {.samples = samples, .groups = 2, .channels = channels};
      CHECK(args.cuda_chunks() * args.cuda_samples_per_chunk() >= samples);
      CHECK(args.cuda_chunks() <= 64);
      CHECK((args.cuda_chunks() <= 1 || args.cuda_samples_per_chunk() >= 16));
    }
  }
}

}  // namespace tessera
