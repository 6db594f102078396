// The CUDA kernels with indices, gather and scatter, against the CPU's, and their handling of an
// index out of range.

#include "tessera/tensor/cuda/faults.h"
#include "tessera/tensor/kernels/indexing.h"
#include "tessera/tensor/kernels/plans/scatter_plan.h"
#include "tessera/tests/gpu/comparison.h"

namespace tessera {
namespace {

using testing::compare_devices;
using testing::HostTensor;

void throw_bad_index(std::int64_t index, std::int64_t position, std::int64_t extent, int dim) {
  throw std::runtime_error("index " + std::to_string(index) + " at " + std::to_string(position) +
                           " outside " + std::to_string(extent) + " of dim " + std::to_string(dim));
}

// Operands indexed along `dim` by indices of `shape`, which are repeated in the dims of `repeated`.
struct Case {
  Shape shape;
  int dim = 0;
  std::int64_t extent = 1;
  std::vector<int> repeated = {};
  DType index_dtype = DType::kI64;
  std::int64_t first = 0;   // offset of all operands, in elements
  bool transposed = false;  // the moved operands have reversed dims in memory
};

std::string text(const Case& c, DType dtype) {
  std::string out = std::string(dtype_name(dtype)) + " [";
  for (std::int64_t n : c.shape) out += std::to_string(n) + ",";
  return out + "] dim " + std::to_string(c.dim) + " of " + std::to_string(c.extent) + ", index " +
         dtype_name(c.index_dtype) + (c.transposed ? ", transposed" : "") + ", first " +
         std::to_string(c.first) + ", repeated in " + std::to_string(c.repeated.size());
}

Shape strides_of(const Case& c, const Shape& shape) {
  if (!c.transposed) return contiguous_strides(shape);
  Shape strides = shape;
  std::int64_t step = 1;
  for (int d = 0; d < shape.ndim(); ++d) {
    strides[d] = step;
    step *= shape[d];
  }
  return strides;
}

struct Operands {
  HostTensor indexed, index, other;
  IndexedWalk walk;
};

// Irregular but fixed indices; a small `spread` gives many equal ones.
Operands operands_of(const Case& c, DType dtype, std::int64_t spread) {
  Shape full = c.shape;
  full[c.dim] = c.extent;
  Shape index_shape = c.shape;
  for (int d : c.repeated) index_shape[d] = 1;
  Shape index_strides = contiguous_strides(index_shape);
  for (int d : c.repeated) index_strides[d] = 0;
  const Shape indexed_strides = strides_of(c, full), other_strides = strides_of(c, c.shape);
  const auto index_at = [&](std::int64_t i) {
    return static_cast<double>(i * 7919 % 104'729 % spread % std::max<std::int64_t>(1, c.extent));
  };
  Operands o{HostTensor(dtype, full, indexed_strides, c.first).random(-3, 3, 5),
             HostTensor(c.index_dtype, c.shape, index_strides).filled(index_at),
             HostTensor(dtype, c.shape, other_strides, c.first).random(-3, 3, 7),
             {.shape = c.shape,
              .indexed = indexed_strides,
              .index = index_strides,
              .other = other_strides,
              .dim = c.dim,
              .stride = indexed_strides[c.dim],
              .extent = c.extent,
              .named_dim = c.dim}};
  o.walk.indexed[c.dim] = 0;
  return o;
}

GatherKernel::Args gather_args(const Operands& o) {
  GatherKernel::Args args;
  args.x = o.indexed;
  args.index = o.index;
  args.y = o.other;
  args.walk = o.walk;
  args.bad_index = throw_bad_index;
  return args;
}
ScatterKernel::Args scatter_args(const Operands& o, ScatterMode mode) {
  ScatterKernel::Args args;
  args.src = o.other;
  args.index = o.index;
  args.y = o.indexed;
  args.walk = o.walk;
  args.mode = mode;
  args.bad_index = throw_bad_index;
  return args;
}

void compare_gather(const Case& c, DType dtype) {
  compare_devices<GatherKernel>(text(c, dtype), gather_args(operands_of(c, dtype, 1 << 30)));
}
void compare_scatter(const Case& c, DType dtype, ScatterMode mode, std::int64_t spread = 1 << 30,
                     std::int64_t skip = -1) {
  ScatterKernel::Args args;
  const Operands o = operands_of(c, dtype, spread);
  args = scatter_args(o, mode);
  args.skip = skip;
  compare_devices<ScatterKernel>(text(c, dtype) + " mode " + std::to_string(static_cast<int>(mode)),
                                 args);
}

constexpr DType kSums[] = {DType::kF32, DType::kF64, DType::kI64, DType::kI32, DType::kU8};

}  // namespace

TEST_CASE("gather on the GPU: rows of an embedding") {
  for (DType dtype : kAllDTypes) {
    for (std::int64_t features : {1, 3, 8, 33, 96, 1100})
      compare_gather({.shape = {37, features}, .extent = 50, .repeated = {1}}, dtype);
    compare_gather({.shape = {5, 64}, .extent = 9, .repeated = {1}, .first = 1}, dtype);
    compare_gather({.shape = {5, 64}, .extent = 9, .repeated = {1}, .first = 4}, dtype);
  }
  compare_gather({.shape = {1200, 4096}, .extent = 3, .repeated = {1}}, DType::kBF16);
  compare_gather({.shape = {300, 5}, .extent = 3, .repeated = {1}, .index_dtype = DType::kI32},
                 DType::kF32);
}

TEST_CASE("gather on the GPU: every dim, own and repeated indices, any layout") {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kU8, DType::kI64}) {
    for (int dim = 0; dim < 3; ++dim) {
      for (bool transposed : {false, true}) {
        for (const std::vector<int>& repeated : {std::vector<int>{}, {0}, {1}, {2}, {0, 2}, {1, 2}})
          compare_gather({.shape = {5, 7, 12},
                          .dim = dim,
                          .extent = 4,
                          .repeated = repeated,
                          .index_dtype = transposed ? DType::kI32 : DType::kI64,
                          .transposed = transposed},
                         dtype);
      }
    }
    compare_gather({.shape = {0, 7}, .extent = 4}, dtype);
    compare_gather({.shape = {1}, .extent = 1}, dtype);
  }
  compare_gather({.shape = {1'100'000}, .extent = 100}, DType::kBF16);
}

TEST_CASE("scatter on the GPU: rows that are added in the order of the indices") {
  for (DType dtype : kSums) {
    for (std::int64_t tokens : {1, 20, 33, 300, 1030}) {
      for (std::int64_t features : {1, 3, 4, 68}) {
        const Case c{.shape = {tokens, features}, .extent = 50, .repeated = {1}};
        compare_scatter(c, dtype, ScatterMode::kAdd);
        compare_scatter(c, dtype, ScatterMode::kAdd, 3, 1);
      }
    }
    compare_scatter({.shape = {100, 64}, .extent = 9, .repeated = {1}, .first = 1}, dtype,
                    ScatterMode::kAdd);
    compare_scatter({.shape = {40, 64}, .extent = 1, .repeated = {1}, .index_dtype = DType::kI32},
                    dtype, ScatterMode::kAdd);
  }
  compare_scatter({.shape = {3000, 300}, .extent = 70'000, .repeated = {1}}, DType::kF32,
                  ScatterMode::kAdd);
  compare_scatter({.shape = {300, 2100}, .extent = 5, .repeated = {1}}, DType::kF32,
                  ScatterMode::kAdd);
}

TEST_CASE("scatter on the GPU: products, maxima and minima") {
  for (DType dtype : kSums) {
    for (ScatterMode mode :
         {ScatterMode::kMultiply, ScatterMode::kMaximum, ScatterMode::kMinimum}) {
      for (std::int64_t tokens : {1, 33, 300}) {
        for (std::int64_t features : {1, 3, 68}) {
          const Case c{.shape = {tokens, features}, .extent = 50, .repeated = {1}};
          compare_scatter(c, dtype, mode);
          compare_scatter(c, dtype, mode, 3);
        }
      }
      compare_scatter({.shape = {7, 300}, .dim = 1, .extent = 4}, dtype, mode);
    }
  }
}

TEST_CASE("gather and scatter on the GPU: negative indices count from the back") {
  for (const Shape& shape : {Shape{20, 5}, Shape{300, 1}, Shape{70, 64}}) {
    Case c{.shape = shape, .extent = 9, .repeated = {1}};
    Operands o = operands_of(c, DType::kF32, 1 << 30);
    o.index = HostTensor(DType::kI64, shape, Shape{1, 0}).filled([](std::int64_t i) {
      return static_cast<double>(i * 7919 % 18 - 9);
    });
    o.walk.least = -9;
    compare_devices<GatherKernel>(text(c, DType::kF32), gather_args(o));
    compare_devices<ScatterKernel>(text(c, DType::kF32), scatter_args(o, ScatterMode::kAdd));
  }
}

TEST_CASE("linear indices on the GPU, also negative ones") {
  const HostTensor rows = HostTensor(DType::kI64, {30, 40}, Shape{1, 0}).filled([](std::int64_t i) {
    return double(i / 40 * 7919 % 12 - 6);
  }),
                   columns =
                       HostTensor(DType::kI32, {30, 40}, Shape{0, 1}).filled([](std::int64_t i) {
                         return double(i % 40 * 31 % 10 - 5);
                       }),
                   y = HostTensor(DType::kI64, {30, 40});
  LinearIndexKernel::Args args;
  args.indices[0] = rows;
  args.indices[1] = columns;
  args.extents = {6, 5};
  args.y = y;
  args.bad_index = throw_bad_index;
  compare_devices<LinearIndexKernel>("linear_index", args);
}

TEST_CASE("nonzero on the GPU: every dtype, strided, cut off and filled up") {
  for (DType dtype : kAllDTypes) {
    for (const Shape& shape :
         {Shape{3, 5, 7}, Shape{5000}, Shape{70, 0}, Shape{}, Shape{33, 1025}}) {
      for (std::int64_t rows : {0, 3, 1500, 40'000}) {
        for (bool reversed : {false, true}) {
          Shape strides = contiguous_strides(shape);
          if (reversed) {
            std::int64_t step = 1;
            for (int d = 0; d < shape.ndim(); ++d) {
              strides[d] = step;
              step *= shape[d];
            }
          }
          const HostTensor x = HostTensor(dtype, shape, strides).filled([](std::int64_t i) {
            return i * 7919 % 104'729 % 5 < 2 ? 1.0 : 0.0;
          });
          const HostTensor y(
              DType::kI64, {rows, shape.ndim()},
              reversed ? Shape{1, std::max<std::int64_t>(rows, 1)} : Shape{shape.ndim(), 1});
          NonzeroKernel::Args args;
          args.x = x;
          args.y = y;
          args.fill = -3;
          compare_devices<NonzeroKernel>(std::string(dtype_name(dtype)) + shape.str(), args);
        }
      }
    }
  }
}

TEST_CASE("scatter on the GPU: of equal indices the last one stays") {
  for (DType dtype : kAllDTypes) {
    for (std::int64_t tokens : {1, 33, 700}) {
      for (std::int64_t features : {1, 3, 64}) {
        const Case c{.shape = {tokens, features}, .extent = 50, .repeated = {1}};
        compare_scatter(c, dtype, ScatterMode::kAssign);
        compare_scatter(c, dtype, ScatterMode::kAssign, 2, 0);
      }
    }
  }
}

void compare_layouts(DType dtype, ScatterMode mode) {
  for (int dim = 0; dim < 3; ++dim) {
    for (bool transposed : {false, true}) {
      for (const std::vector<int>& repeated : {std::vector<int>{}, {0}, {1}, {2}, {0, 2}, {1, 2}}) {
        Case c{.shape = {3, 5, 8},
               .dim = dim,
               .extent = 4,
               .repeated = repeated,
               .transposed = transposed};
        compare_scatter(c, dtype, mode);
        c.shape[dim] = 45;  // sorted
        compare_scatter(c, dtype, mode);
      }
    }
  }
  compare_scatter({.shape = {0, 7}, .extent = 4}, dtype, mode);
  compare_scatter({.shape = {50, 0}, .extent = 4, .repeated = {1}}, dtype, mode);
}

TEST_CASE("scatter on the GPU: every dim, own and repeated indices, any layout") {
  compare_layouts(DType::kF32, ScatterMode::kAdd);
  compare_layouts(DType::kI64, ScatterMode::kAdd);
  compare_layouts(DType::kU8, ScatterMode::kAssign);
}

TEST_CASE("scatter on the GPU: more indices than one step of a block, and many long lines") {
  compare_scatter({.shape = {140'000}, .extent = 1000}, DType::kF32, ScatterMode::kAdd);
  compare_scatter({.shape = {ScatterPlan::kManyLines, 40}, .dim = 1, .extent = 3}, DType::kF32,
                  ScatterMode::kAdd);
}

// ---- indices out of range -----------------------------------------------------------------------

namespace {

// The exception text of the null stream's fault; empty: none.
std::string fault_text() {
  testing::cuda_check(cudaDeviceSynchronize());
  const std::exception_ptr fault = cuda::take_fault(*cuda::fault_slot(nullptr));
  if (fault == nullptr) return "";
  try {
    std::rethrow_exception(fault);
  } catch (const std::exception& error) {
    return error.what();
  }
}

std::vector<std::int64_t> indices_with(std::int64_t n, std::int64_t at, std::int64_t bad) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(n), 1);
  out[static_cast<std::size_t>(at)] = bad;
  return out;
}

// [n, features] of ones, and a result of sevens [extent or n, features].
struct FaultCase {
  std::int64_t n, features, extent;
  testing::DeviceBuffer<std::int64_t> index;
  testing::DeviceBuffer<float> ones, sevens;

  FaultCase(std::int64_t count, std::int64_t f, std::int64_t at, std::int64_t bad)
      : n(count),
        features(f),
        extent(4),
        index(indices_with(count, at, bad)),
        ones(std::vector<float>(static_cast<std::size_t>(std::max(n, extent) * f), 1)),
        sevens(std::vector<float>(static_cast<std::size_t>(std::max(n, extent) * f), 7)) {}

  IndexedWalk walk() const {
    return {.shape = {n, features},
            .indexed = {0, 1},
            .index = {1, 0},
            .other = {features, 1},
            .dim = 0,
            .stride = features,
            .extent = extent,
            .named_dim = 3};
  }
  ConstView index_view() const {
    return {.data = index.data(), .dtype = DType::kI64, .shape = {n, features}, .strides = {1, 0}};
  }
  ConstView ones_view() const {
    return {.data = ones.data(), .shape = {n, features}, .strides = {features, 1}};
  }
  View sevens_view() const {
    return {.data = sevens.data(), .shape = {n, features}, .strides = {features, 1}};
  }

  void gather() const {
    GatherKernel::cuda(nullptr,
                       {.x = ones_view(),
                        .index = index_view(),
                        .y = sevens_view(),
                        .walk = walk(),
                        .bad_index = throw_bad_index},
                       {});
  }
  void scatter() const {
    const ScatterKernel::Args args{.src = ones_view(),
                                   .index = index_view(),
                                   .y = sevens_view(),
                                   .walk = walk(),
                                   .mode = ScatterMode::kAdd,
                                   .bad_index = throw_bad_index};
    const std::size_t bytes = ScatterKernel::cuda_workspace(args);
    const testing::DeviceBuffer<std::byte> scratch(std::vector<std::byte>(bytes + 16));
    ScatterKernel::cuda(nullptr, args, {.data = scratch.data(), .bytes = bytes});
  }
};

}  // namespace

TEST_CASE("an index out of range on the GPU: reported once, and nothing outside is touched") {
  for (std::int64_t features : {1, 3, 64}) {
    const FaultCase c(40, features, 17, 4);
    c.gather();
    CHECK(fault_text() == "index 4 at 17 outside 4 of dim 3");
    CHECK(fault_text().empty());
    const std::vector<float> values = c.sevens.values();
    for (std::int64_t i = 0; i < c.n * features; ++i)
      CHECK(values[static_cast<std::size_t>(i)] == (i / features == 17 ? 0.0f : 1.0f));
  }
  for (std::int64_t n : {20, 400}) {  // walked, and sorted
    const FaultCase c(n, 5, 7, -1);
    c.scatter();
    CHECK(fault_text() == "index -1 at 7 outside 4 of dim 3");
    const std::vector<float> values = c.sevens.values();
    for (std::size_t i = 0; i < 20; ++i)
      CHECK(values[i] == (i / 5 == 1 ? 7 + static_cast<float>(n - 1) : 7));
  }
}

TEST_CASE("an index out of range on the GPU: the first fault stays until somebody looks") {
  const FaultCase first(20, 3, 2, 9), second(20, 3, 5, 11), good(20, 3, 0, 2);
  first.gather();
  second.gather();
  good.gather();
  CHECK(fault_text() == "index 9 at 2 outside 4 of dim 3");
  CHECK(fault_text().empty());
  second.scatter();
  CHECK(fault_text() == "index 11 at 5 outside 4 of dim 3");
}

}  // namespace tessera
