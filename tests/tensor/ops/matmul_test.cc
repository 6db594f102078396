// Matrix products against plain loops: shapes, layouts, dtypes, batches, outputs, bits.
#include "tessera/tensor/ops/matmul.h"

#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <thread>

#include "tessera/tensor/error.h"
#include "tessera/tensor/kernels/matmul.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/kernels/table.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tests/support/test_main.h"
#include "tessera/tests/tensor/ops/matmul_support.h"

namespace tessera {
namespace {

using namespace testing;

struct Size {
  std::int64_t m, n, k;
};
const std::vector<Size> kSizes = {{1, 1, 1},      {3, 5, 7},    {1, 33, 65},   {65, 1, 33},
                                  {33, 65, 1},    {64, 64, 64}, {17, 300, 9},  {300, 17, 129},
                                  {257, 259, 31}, {2, 3, 4100}, {130, 10, 513}};

TEST_CASE("matmul: odd sizes in every layout and dtype") {
  for (const auto& [m, n, k] : kSizes) {
    for (DType dtype : kFloating) {
      const Tensor a = spread_of(dtype, {m, k}), b = spread_of(dtype, {k, n});
      const auto exact = slow_product(a, b);
      for (const Tensor& x : layouts(a)) {
        for (const Tensor& y : layouts(b)) {
          INFO(dtype_name(dtype) << " " << m << " x " << n << " x " << k << ", strides "
                                 << x.strides().str() << " " << y.strides().str());
          CHECK(is_close(matmul(x, y), exact, dtype, k));
        }
      }
    }
  }
}

TEST_CASE("matmul: several tiles in both directions") {
  for (DType dtype : kFloating) {
    for (const auto& [m, n, k] : {Size{70, 2100, 70}, Size{520, 65, 300}, Size{100, 700, 600}}) {
      const Tensor a = spread_of(dtype, {m, k}), b = spread_of(dtype, {k, n});
      const auto exact = slow_product(a, b);
      INFO(dtype_name(dtype) << " " << m << " x " << n << " x " << k);
      CHECK(is_close(matmul(a, b), exact, dtype, k));
      CHECK(is_close(matmul(a, clone(b.transpose(0, 1)).transpose(0, 1)), exact, dtype, k));
      CHECK(is_close(matmul(clone(a.transpose(0, 1)).transpose(0, 1), b), exact, dtype, k));
    }
  }
}

// Such rows share few sets of the caches.
TEST_CASE("matmul: rows that lie a multiple of 512 elements apart") {
  for (DType dtype : kFloating) {
    for (const auto& [m, n, k] : {Size{40, 1536, 270}, Size{512, 37, 300}, Size{512, 512, 257},
                                  Size{31, 512, 9}, Size{300, 512, 1}}) {
      const Tensor a = spread_of(dtype, {m, k}), b = spread_of(dtype, {k, n});
      const auto exact = slow_product(a, b);
      INFO(dtype_name(dtype) << " " << m << " x " << n << " x " << k);
      for (const Tensor& x : {a, by_columns(a)}) {
        for (const Tensor& y : {b, by_columns(b)}) {
          CHECK(is_close(matmul(x, y), exact, dtype, k));
          const Tensor out = spread_of(DType::kF32, {m, n});
          const auto before = values(out);
          matmul_into(out, x, y, {.alpha = 1, .beta = 1});
          auto sum = exact;
          for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += before[i];
          if (dtype != DType::kF64) CHECK(is_close(out, sum, dtype, k));
        }
      }
      const Tensor bias = spread_of(dtype, {n}, -1, 1);
      const Tensor weight = by_columns(clone(b.transpose(0, 1)));
      const auto of_bias = values(bias);
      auto biased = exact;
      for (std::size_t i = 0; i < biased.size(); ++i)
        biased[i] += of_bias[i % static_cast<std::size_t>(n)];
      CHECK(is_close(linear(a, weight, bias), biased, dtype, k));
      const ActivatedLinear both = linear_and_before(a, weight, bias, ActivationKind::kGelu);
      CHECK(is_close(both.before, biased, dtype, k));
      CHECK(is_activation_of(both.result, both.before, ActivationKind::kGelu));
    }
    const Tensor a = spread_of(dtype, {3, 40, 270}), b = spread_of(dtype, {3, 270, 512});
    CHECK(is_close(matmul(a, b), slow_batch(a, b, {3}), dtype, 270));
    CHECK(same_for_any_threads([&] { return bits_of(matmul(a, b)); }));
  }
}

TEST_CASE("matmul: batches, broadcast either way, in every layout") {
  struct Case {
    Shape a, b, batch;
  };
  const std::vector<Case> cases = {{{4, 3, 5}, {4, 5, 2}, {4}},
                                   {{3, 5}, {4, 5, 2}, {4}},
                                   {{4, 3, 5}, {5, 2}, {4}},
                                   {{2, 1, 3, 5}, {4, 5, 2}, {2, 4}},
                                   {{2, 3, 4, 1}, {2, 3, 1, 5}, {2, 3}},
                                   {{1, 3, 70}, {3, 70, 33}, {3}},
                                   {{3, 1, 1, 7}, {3, 2, 7, 1}, {3, 2}},
                                   {{5, 2, 3, 4}, {4, 6}, {5, 2}}};
  for (const auto& [a_shape, b_shape, batch] : cases) {
    for (DType dtype : kFloating) {
      const Tensor a = spread_of(dtype, a_shape), b = spread_of(dtype, b_shape);
      const auto exact = slow_batch(a, b, batch);
      Shape shape = batch;
      shape.push_back(a.dim(-2));
      shape.push_back(b.dim(-1));
      for (const Tensor& x : layouts(a)) {
        for (const Tensor& y : layouts(b)) {
          INFO(dtype_name(dtype) << a_shape.str() << b_shape.str() << x.strides().str()
                                 << y.strides().str());
          const Tensor c = matmul(x, y);
          CHECK(c.shape() == shape);
          CHECK(is_close(c, exact, dtype, a.dim(-1)));
        }
      }
    }
  }
}

TEST_CASE("matmul: heads of attention, as they lie in memory") {
  for (DType dtype : kFloating) {
    const Tensor q = spread_of(dtype, {2, 7, 3, 5}).transpose(1, 2),
                 k = spread_of(dtype, {2, 7, 3, 5}, -1, 1).transpose(1, 2);
    const Tensor scores = matmul(q, k.transpose(2, 3));
    CHECK(scores.shape() == Shape{2, 3, 7, 7});
    CHECK(is_close(scores, slow_batch(q, k.transpose(2, 3), {2, 3}), dtype, 5));
  }
}

TEST_CASE("matmul: the bits of a product do not depend on its batch") {
  for (DType dtype : kFloating) {
    for (const auto& [m, n, k] :
         {Size{16, 16, 16}, Size{33, 20, 700}, Size{1, 9, 5}, Size{9, 1, 5}}) {
      const Tensor a = spread_of(dtype, {23, m, k}), b = spread_of(dtype, {23, k, n});
      const Tensor all = matmul(a, b);
      INFO(dtype_name(dtype) << " " << m << " x " << n << " x " << k);
      // On a GPU cuBLASLt chooses an algorithm for the whole batch.
      const auto same = [&, dtype = dtype, k = k](const Tensor& x, const Tensor& y) {
        if (!default_device().is_cuda()) return equal_bits(x, y);
        return is_close(x, cast(y, DType::kF64).to_vector<double>(), dtype, k);
      };
      for (std::int64_t i : {0, 7, 22})
        CHECK(same(all.select(0, i), matmul(a.select(0, i), b.select(0, i))));
      CHECK(same(all.slice(0, 5, 16), matmul(a.slice(0, 5, 16), b.slice(0, 5, 16))));
    }
  }
}

TEST_CASE("matmul: vectors") {
  for (DType dtype : kFloating) {
    const Tensor v = spread_of(dtype, {5}), a = spread_of(dtype, {3, 5}),
                 b = spread_of(dtype, {2, 5, 4});
    const Tensor product = matmul(a, v), row = matmul(v, b), number = matmul(v, v);
    CHECK(product.shape() == Shape{3});
    CHECK(is_close(product, slow_product(a, v.unsqueeze(1)), dtype, 5));
    CHECK(row.shape() == Shape{2, 4});
    CHECK(is_close(row, slow_batch(v.unsqueeze(0), b, {2}), dtype, 5));
    CHECK(number.shape() == Shape{});
    CHECK(is_close(number, slow_product(v.unsqueeze(0), v.unsqueeze(1)), dtype, 5));
    CHECK(matmul(b.transpose(1, 2), v).shape() == Shape{2, 4});
    CHECK(values(mv(a, v)) == values(product));
    CHECK(values(dot(v, v)) == values(number));
    const Tensor u = spread_of(dtype, {3});
    CHECK(values(outer(u, v)) == values(mul(u.unsqueeze(1), v.unsqueeze(0))));
    CHECK(values(bmm(b.transpose(1, 2), b)) == values(matmul(b.transpose(1, 2), b)));
  }
}

TEST_CASE("matmul: broadcast operands") {
  const Tensor a = spread_tensor<float>({1, 5}), b = spread_tensor<float>({5, 3});
  const auto row = matmul(a, b).to_vector<float>();
  const auto rows = matmul(a.expand({4, 5}), b).to_vector<float>();
  for (std::size_t i = 0; i < rows.size(); ++i) CHECK(rows[i] == Approx(row[i % 3]).margin(1e-5));
}

TEST_CASE("matmul: empty extents") {
  for (DType dtype : kFloating) {
    const TensorOptions options{.dtype = dtype};
    CHECK(matmul(zeros({0, 3}, options), zeros({3, 4}, options)).shape() == Shape{0, 4});
    CHECK(matmul(zeros({2, 3}, options), zeros({3, 0}, options)).shape() == Shape{2, 0});
    CHECK(matmul(zeros({0, 2, 3}, options), zeros({3, 5}, options)).shape() == Shape{0, 2, 5});
    CHECK(matmul(zeros({0}, options), zeros({0, 2}, options)).shape() == Shape{2});
    CHECK(values(matmul(zeros({2, 0}, options), zeros({0, 3}, options))) ==
          std::vector<double>(6, 0));
    CHECK(values(matmul(zeros({2, 2, 0}, options), zeros({0, 3}, options))) ==
          std::vector<double>(12, 0));
    CHECK(values(matmul(zeros({0}, options), zeros({0}, options))) == std::vector<double>{0});
    const Tensor out = full({2, 3}, 4, options);
    matmul_into(out, zeros({2, 0}, options), zeros({0, 3}, options), {.beta = 0.5});
    CHECK(values(out) == std::vector<double>(6, 2));
  }
}

TEST_CASE("matmul: equal bits for any number of threads") {
  for (const auto& [m, n, k] : {Size{300, 520, 130}, Size{64, 512, 784}, Size{1024, 10, 512},
                                Size{40, 30, 9000}, Size{513, 600, 700}, Size{1, 1031, 784}}) {
    for (DType dtype : kFloating) {
      const Tensor a = spread_of(dtype, {m, k}), b = spread_of(dtype, {k, n});
      INFO(dtype_name(dtype) << " " << m << " x " << n << " x " << k);
      CHECK(same_for_any_threads([&] { return bits_of(matmul(a, b)); }));
      CHECK(same_for_any_threads(
          [&] { return bits_of(linear(a, clone(b.transpose(0, 1)), Tensor())); }));
    }
  }
  for (DType dtype : kFloating) {
    const Tensor a = spread_of(dtype, {37, 65, 33}), b = spread_of(dtype, {37, 33, 70});
    CHECK(same_for_any_threads([&] { return bits_of(matmul(a, b)); }));
  }
}

TEST_CASE("matmul: a product of one tile has the bits of one thread") {
  // Without our tiles oneDNN would split the inner dim here, and half of the bits would differ. An
  // existing primitive has fixed that choice, so each number of threads gets a size of its own that
  // differs only in rows beyond the compared ones.
  const std::int64_t m = 16, n = 33, k = 4096;
  const Tensor a = spread_tensor<float>({k, m + 3}), b = spread_tensor<float>({k, n});
  const auto product = [&](int threads) {
    return with_threads(threads, [&] {
      const Tensor left = clone(a.slice(1, 0, m + threads)).transpose(0, 1);
      REQUIRE(matmul_tiles(DType::kF32, m + threads, n, k).m == m + threads);
      return matmul(left, b).slice(0, 0, m).to_vector<float>();
    });
  };
  const auto expected = product(1);
  CHECK(same_bits(product(2), expected));
  CHECK(same_bits(product(3), expected));
}

TEST_CASE("matmul: ranks as threads may compute at the same time") {
  const Tensor a = spread_tensor<float>({300, 200}), b = spread_tensor<float>({200, 310});
  const auto expected = matmul(a, b).to_vector<float>();
  std::vector<std::vector<float>> results(4);
  std::vector<std::thread> ranks;
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    ranks.emplace_back([&, rank] {
      RankScope scope(
          std::make_shared<RankContext>(static_cast<int>(rank), 4, 1 + static_cast<int>(rank) % 2));
      // Tensors belong to one thread: each rank reads its own handle of the shared bytes.
      const Tensor x = Tensor::from_vector(spread<float>(300 * 200), {300, 200});
      const Tensor y = Tensor::from_vector(spread<float>(200 * 310), {200, 310});
      for (int i = 0; i < 5; ++i) results[rank] = matmul(x, y).to_vector<float>();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const auto& result : results) CHECK(same_bits(result, expected));
}

TEST_CASE("matmul_tiles: cover the product, follow shape and dtype only, stay within bounds") {
  for (DType dtype : kFloating) {
    const std::int64_t most_columns = dtype == DType::kF64 ? 256 : 4096;
    for (std::int64_t m : {1, 15, 16, 64, 255, 257, 1024, 5000}) {
      for (std::int64_t n : {1, 10, 300, 784, 4096}) {
        for (std::int64_t k : {0, 1, 64, 784, 10'000}) {
          const MatmulTiles t = matmul_tiles(dtype, m, n, k);
          CHECK((t.m >= 1 && t.m <= std::min<std::int64_t>(m, 256)));
          CHECK((t.n >= 1 && t.n <= std::min<std::int64_t>(n, most_columns)));
        }
      }
    }
  }
  const MatmulTiles mlp = matmul_tiles(DType::kF32, 1024, 512, 784);
  CHECK((mlp.m == 256 && mlp.n == 512));
  const MatmulTiles one = matmul_tiles(DType::kF32, 256, 256, 256);  // work for a second thread
  CHECK((one.m == 128 && one.n == 256));
  const MatmulTiles few_rows = matmul_tiles(DType::kBF16, 64, 512, 784);
  CHECK((few_rows.m == 64 && few_rows.n == 256));
  const MatmulTiles one_row = matmul_tiles(DType::kF32, 1, 4096, 1024);
  CHECK((one_row.m == 1 && one_row.n == 1024));
  const MatmulTiles short_row = matmul_tiles(DType::kF32, 1, 512, 512);
  CHECK((short_row.m == 1 && short_row.n == 512));
  const MatmulTiles small = matmul_tiles(DType::kF64, 64, 64, 64);
  CHECK((small.m == 64 && small.n == 64));
}

TEST_CASE("matmul: scratch is counted, one part per thread and tile") {
  const DefaultDeviceScope host(kCpu);  // a GPU's scratch does not depend on threads
  for (DType dtype : kFloating) {
    const auto peak = [dtype](int threads) {
      return with_threads(threads, [dtype] {
        const Tensor a = zeros({1024, 300}, {.dtype = dtype}),
                     b = zeros({300, 512}, {.dtype = dtype});
        matmul(a, b);
        return current_rank_context()->memory().peak()[MemoryCategory::kWorkspace];
      });
    };
    CHECK(peak(1) > 0);
    CHECK(peak(3) == 3 * peak(1));
  }
}

TEST_CASE("matmul: oneDNN is served where it wants more scratch than there is") {
  if (cpu_isa() == CpuIsa::kX86V3) return skip("kernels for x86-64-v3 do not use oneDNN");
  const DefaultDeviceScope host(kCpu);
  const Tensor a = spread_tensor<float>({300, 400}), b = spread_tensor<float>({400, 10});
  const Tensor out = zeros({300, 10});
  std::get<CpuEntry<MatmulKernel>>(cpu_table())
      .run({.a = read(a), .b = read(b), .bias = {}, .before = {}, .c = write(out)}, {});
  CHECK(same_bits(out.to_vector<float>(), matmul(a, b).to_vector<float>()));
}

// While it lives, the system gives this process only so much more address space.
class AddressSpaceLimit {
 public:
  explicit AddressSpaceLimit(rlim_t more) {
    REQUIRE(getrlimit(RLIMIT_AS, &before_) == 0);
    std::ifstream counts("/proc/self/statm");
    rlim_t pages = 0;
    REQUIRE(counts >> pages);
    const auto page = static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
    const rlimit now = {.rlim_cur = pages * page + more, .rlim_max = before_.rlim_max};
    REQUIRE(setrlimit(RLIMIT_AS, &now) == 0);
  }
  ~AddressSpaceLimit() { setrlimit(RLIMIT_AS, &before_); }
  AddressSpaceLimit(const AddressSpaceLimit&) = delete;
  AddressSpaceLimit& operator=(const AddressSpaceLimit&) = delete;

 private:
  rlimit before_ = {};
};

// Alone, oneDNN writes code to address 0 where the system gives no memory for it. Kernels for x86-64-v3 generate no code.
TEST_CASE("matmul: no memory for the code of a product is an error, and only while there is none") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return skip("a sanitizer needs address space of its own");
#endif
  const DefaultDeviceScope host(kCpu);
  constexpr rlim_t kAllButTheCode = rlim_t{8} << 20;
  constexpr std::int64_t kSize = 71;  // of no other product: its code is not there yet
  const Tensor a = spread_tensor<float>({kSize, kSize}), b = spread_tensor<float>({kSize, kSize});
  const Tensor out = zeros({kSize, kSize});
  std::string error;
  {
    const AddressSpaceLimit limit(kAllButTheCode);
    const auto product = [&] { matmul_into(out, a, b, {}); };
    cpu_isa() == CpuIsa::kX86V3 ? product() : void(error = thrown<OutOfMemory>(product));
  }
  if (cpu_isa() != CpuIsa::kX86V3) {
    CHECK(error ==
          "[matmul] the system has no room for the code of a product (16 MiB); take a smaller "
          "model or batch or fewer ranks, or raise the limit of memory (ulimit -v)");
    matmul_into(out, a, b, {});
  }
  CHECK(is_close(out, slow_product(a, b), DType::kF32, kSize));
}

}  // namespace
}  // namespace tessera
