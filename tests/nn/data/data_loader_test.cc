// Loops over the batches of a data set: which samples come, on which rank, in which type.
#include "tessera/nn/data/data_loader.h"

#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "tessera/nn/data/datasets.h"
#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/ops/random.h"
#include "tessera/tensor/rank_context.h"

namespace tessera::nn::data {
namespace {

using Catch::Matchers::Contains;
using Indices = std::vector<std::int64_t>;

// Example i is [i, i + 0.5] and i.
struct Numbers {
  std::int64_t count = 0;
  std::int64_t size() const { return count; }
  std::pair<Tensor, std::int64_t> get(std::int64_t index) const {
    const auto value = static_cast<float>(index);
    return {Tensor::from_vector<float>({value, value + 0.5F}, {2}), index};
  }
};

// The indices of a batch, after a check that its two members agree.
Indices checked(const std::pair<Tensor, Tensor>& batch) {
  const Indices indices = batch.second.to_vector<std::int64_t>();
  const auto rows = static_cast<std::int64_t>(indices.size());
  CHECK(batch.first.shape() == Shape{rows, 2});
  CHECK(batch.first.is_contiguous());
  CHECK(batch.second.shape() == Shape{rows});
  std::vector<float> expected;
  for (const std::int64_t index : indices) {
    expected.push_back(static_cast<float>(index));
    expected.push_back(static_cast<float>(index) + 0.5F);
  }
  CHECK(batch.first.to_vector<float>() == expected);
  return indices;
}

template <class Loader>
std::vector<Indices> one_epoch(Loader& loader) {
  std::vector<Indices> batches;
  for (auto batch : loader) batches.push_back(checked(batch));
  return batches;
}

TEST_CASE("a loop gives every sample, in batches") {
  const int workers = GENERATE(0, 1, 3);
  const Numbers numbers{7};
  DataLoader loader(numbers, {.batch_size = 3, .workers = workers});
  CHECK(loader.size() == 3);
  CHECK(&loader.data() == &numbers);
  CHECK(one_epoch(loader) == std::vector<Indices>{{0, 1, 2}, {3, 4, 5}, {6}});
  CHECK(one_epoch(loader) == std::vector<Indices>{{0, 1, 2}, {3, 4, 5}, {6}});
  DataLoader dropping(numbers, {.batch_size = 3, .drop_last = true, .workers = workers});
  CHECK(dropping.size() == 2);
  CHECK(one_epoch(dropping) == std::vector<Indices>{{0, 1, 2}, {3, 4, 5}});
  DataLoader large(numbers, {.batch_size = 8, .workers = workers});
  CHECK(one_epoch(large) == std::vector<Indices>{{0, 1, 2, 3, 4, 5, 6}});
  DataLoader too_large(numbers, {.batch_size = 8, .drop_last = true, .workers = workers});
  CHECK(too_large.size() == 0);
  CHECK(one_epoch(too_large).empty());
  DataLoader one(numbers);
  CHECK(one_epoch(one).size() == 7);
}

TEST_CASE("an empty data set has no batches") {
  const int workers = GENERATE(0, 2);
  DataLoader loader(Numbers{0}, {.batch_size = 3, .shuffle = true, .workers = workers});
  CHECK(loader.size() == 0);
  CHECK(one_epoch(loader).empty());
  CHECK(one_epoch(loader).empty());
  CHECK_THROWS_WITH(loader.load(1), Contains("0 samples in batches of 3"));
}

TEST_CASE("structured bindings name the members of a batch") {
  DataLoader loader(Numbers{5}, {.batch_size = 2});
  std::int64_t rows = 0;
  for (auto [values, indices] : loader) {
    CHECK(values.dim(1) == 2);
    rows += indices.dim(0);
  }
  CHECK(rows == 5);
}

TEST_CASE("each loop is the next epoch, and set_epoch repeats one") {
  const int workers = GENERATE(0, 1, 3);
  DataLoader loader(Numbers{40}, {.batch_size = 7, .shuffle = true, .workers = workers});
  const auto first = one_epoch(loader), second = one_epoch(loader), third = one_epoch(loader);
  CHECK(first != second);
  CHECK(second != third);
  loader.set_epoch(1);
  CHECK(one_epoch(loader) == second);
  CHECK(one_epoch(loader) == third);
  DataLoader again(Numbers{40}, {.batch_size = 7, .shuffle = true, .workers = workers});
  CHECK(one_epoch(again) == first);
  DataLoader other(Numbers{40}, {.batch_size = 7, .shuffle = true, .seed = 2, .workers = workers});
  CHECK(one_epoch(other) != first);
}

TEST_CASE("a loop starts at any batch, and position() says where it is") {
  const int workers = GENERATE(0, 1, 3);
  const DataLoaderOptions options{.batch_size = 4, .shuffle = true, .workers = workers};
  DataLoader whole(Numbers{18}, options), loader(Numbers{18}, options);
  one_epoch(whole);
  const auto second = one_epoch(whole);
  loader.set_epoch(1, 2);
  std::vector<Indices> rest;
  for (auto batch : loader) {
    CHECK(loader.position().epoch == 1);
    CHECK(loader.position().batch == 2 + std::ssize(rest));
    rest.push_back(checked(batch));
    CHECK(loader.position().samples == std::ssize(rest.back()));
  }
  CHECK(rest == std::vector<Indices>(second.begin() + 2, second.end()));
  CHECK(one_epoch(loader) == one_epoch(whole));  // both at epoch 2
  loader.set_epoch(4, 5);  // a run that was stopped after the last batch of epoch 4
  CHECK(one_epoch(loader).empty());
  whole.set_epoch(5);
  CHECK(one_epoch(loader) == one_epoch(whole));
}

TEST_CASE("a loop may end early") {
  const int workers = GENERATE(0, 1, 3);
  DataLoader loader(Numbers{30}, {.batch_size = 4, .shuffle = true, .workers = workers});
  DataLoader whole(Numbers{30}, {.batch_size = 4, .shuffle = true});
  const auto first = one_epoch(whole), second = one_epoch(whole);
  std::vector<Indices> seen;
  for (auto batch : loader) {
    seen.push_back(checked(batch));
    if (seen.size() == 2) break;
  }
  CHECK(seen == std::vector<Indices>(first.begin(), first.begin() + 2));
  CHECK(one_epoch(loader) == second);
}

TEST_CASE("steps count over all epochs, in any order") {
  const int workers = GENERATE(0, 1, 3);
  const DataLoaderOptions options{.batch_size = 4, .shuffle = true, .workers = workers};
  DataLoader epochs(Numbers{10}, options), loader(Numbers{10}, options);
  std::vector<Indices> all;
  for (int epoch = 0; epoch < 3; ++epoch)
    for (auto batch : epochs) all.push_back(checked(batch));
  for (const std::int64_t step : {1, 2, 3, 4, 5, 9, 2, 3, 4, 4, 8})
    CHECK(checked(loader.load(step)) == all[static_cast<std::size_t>(step - 1)]);
  CHECK(loader.position().step == 8);
  CHECK(loader.position().epoch == 2);
  CHECK(loader.position().batch == 1);
  CHECK_THROWS_WITH(loader.load(0), Contains("steps count from 1"));
}

TEST_CASE("the ranks' rows are one batch, the same for any number of ranks") {
  const int ranks = GENERATE(1, 2, 3, 4, 5), workers = GENERATE(0, 2);
  const bool drop_last = GENERATE(false, true), pad = GENERATE(false, true);
  DataLoader alone(Numbers{23}, {.batch_size = 5, .shuffle = true, .drop_last = drop_last});
  std::vector<std::unique_ptr<DataLoader<Numbers>>> loaders;
  for (int rank = 0; rank < ranks; ++rank)
    loaders.push_back(
        std::make_unique<DataLoader<Numbers>>(Numbers{23}, DataLoaderOptions{.batch_size = 5,
                                                                             .shuffle = true,
                                                                             .drop_last = drop_last,
                                                                             .pad = pad,
                                                                             .workers = workers,
                                                                             .ranks = ranks,
                                                                             .rank = rank}));
  for (int epoch = 0; epoch < 2; ++epoch) {
    const std::vector<Indices> batches = one_epoch(alone);
    std::vector<std::vector<Indices>> parts;
    for (auto& loader : loaders) {
      parts.push_back(one_epoch(*loader));
      REQUIRE(parts.back().size() == batches.size());
    }
    for (std::size_t b = 0; b < batches.size(); ++b) {
      Indices joined;
      for (const auto& part : parts) {
        if (pad) CHECK(part[b].size() == parts[0][b].size());
        joined.insert(joined.end(), part[b].begin(), part[b].end());
      }
      if (!pad) CHECK(joined.size() == batches[b].size());
      CHECK(joined.size() < batches[b].size() + static_cast<std::size_t>(ranks));
      for (std::size_t i = 0; i < joined.size(); ++i)
        CHECK(joined[i] == batches[b][i % batches[b].size()]);
    }
  }
}

TEST_CASE("a rank without rows gets a batch with shapes and dtypes") {
  DataLoader loader(Numbers{3}, {.batch_size = 3, .pad = false, .ranks = 5, .rank = 4});
  for (auto [values, indices] : loader) {
    CHECK(values.shape() == Shape{0, 2});
    CHECK(indices.shape() == Shape{0});
    CHECK(indices.dtype() == DType::kI64);
    CHECK(loader.position().rows == 0);
    CHECK(loader.position().samples == 3);
  }
}

// Two numbers that depend on nothing but the draws of the thread.
struct Draws {
  std::int64_t count = 0;
  std::int64_t size() const { return count; }
  std::tuple<std::int64_t, Tensor, Tensor> get(std::int64_t index) const {
    return {index, rand({3}), randint(0, 1'000'000, {})};
  }
};

TEST_CASE("random numbers depend on seed, epoch and sample alone") {
  std::map<std::int64_t, std::vector<float>> expected;  // of epoch 0
  std::set<std::vector<float>> distinct;
  const auto run = [&](const DataLoaderOptions& options, bool equal) {
    DataLoader loader(Draws{12}, options);
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (auto [indices, uniform, integers] : loader) {
        for (std::int64_t row = 0; row < indices.dim(0); ++row) {
          std::vector<float> drawn = uniform.select(0, row).template to_vector<float>();
          drawn.push_back(
              static_cast<float>(integers.select(0, row).template item<std::int64_t>()));
          const std::int64_t index = indices.select(0, row).template item<std::int64_t>();
          distinct.insert(drawn);
          if (epoch == 0 && expected.size() < 12) expected[index] = drawn;
          const bool as_expected = drawn == expected[index];
          CHECK(as_expected == (equal && epoch == 0));
        }
      }
    }
  };
  run({.batch_size = 5}, true);
  CHECK(distinct.size() == 24);
  for (const int workers : {0, 1, 3})
    for (const int ranks : {1, 2, 3})
      for (int rank = 0; rank < ranks; ++rank)
        run({.batch_size = 4, .shuffle = true, .workers = workers, .ranks = ranks, .rank = rank},
            true);
  CHECK(distinct.size() == 24);
  run({.batch_size = 5, .seed = 2}, false);
  manual_seed(17);
  rand({5});
  run({.batch_size = 5}, true);
}

TEST_CASE("drawing in a loader does not change what the thread draws next") {
  manual_seed(3);
  const float first = rand({}).item<float>(), second = rand({}).item<float>();
  manual_seed(3);
  CHECK(rand({}).item<float>() == first);
  DataLoader loader(Draws{4}, {.batch_size = 2});
  for (auto batch : loader) CHECK(std::get<1>(batch).dim(1) == 3);
  CHECK(rand({}).item<float>() == second);
}

struct Sums {
  Tensor sums;
  Tensor noise;
  int count = 0;
  template <class F>
  void visit_tensors(F&& f) {
    f(sums, noise);
  }
};

TEST_CASE("a function makes batches of any type, and draws as the batch") {
  const int workers = GENERATE(0, 2);
  const auto collate = [](std::span<const std::pair<Tensor, std::int64_t>> examples) {
    float total = 0;
    for (const auto& [values, index] : examples) total += static_cast<float>(index);
    return Sums{.sums = Tensor::from_vector<float>({total}, {1}),
                .noise = rand({1}),
                .count = static_cast<int>(examples.size())};
  };
  const auto run = [&](int threads) {
    DataLoader loader(Numbers{8}, {.batch_size = 3, .workers = threads}, collate);
    std::vector<float> sums, noise;
    std::vector<int> counts;
    for (const Sums& batch : loader) {
      sums.push_back(batch.sums.item<float>());
      noise.push_back(batch.noise.item<float>());
      counts.push_back(batch.count);
    }
    CHECK(sums == std::vector<float>{3, 12, 13});
    CHECK(counts == std::vector<int>{3, 3, 2});
    return noise;
  };
  const std::vector<float> noise = run(workers);
  CHECK(noise == run(0));
  CHECK(std::set<float>(noise.begin(), noise.end()).size() == 3);
}

TEST_CASE("batches come to the device of the options") {
  DataLoader loader(Numbers{4}, {.batch_size = 2, .workers = 1, .device = kNull});
  for (auto [values, indices] : loader) {
    CHECK(values.device().is_null());
    CHECK(values.shape() == Shape{2, 2});
    CHECK(indices.dtype() == DType::kI64);
  }
  DataLoader here(Numbers{4}, {.batch_size = 2});
  for (auto [values, indices] : here) CHECK(values.device() == default_device());
}

TEST_CASE("a rank's counters have the batches that it got, and none that wait") {
  const int workers = GENERATE(0, 2);
  const auto context = std::make_shared<RankContext>(0, 1, 1);
  const RankScope scope(context);
  DataLoader loader(Numbers{40}, {.batch_size = 20, .workers = workers, .device = kCpu});
  {
    const auto batch = loader.load(1);
    loader.load(2);
    // 40 floats and 20 integers, in units of 64 bytes.
    CHECK(context->memory().current().total() == 192 + 192);
    CHECK(context->memory().peak_total() == 2 * (192 + 192));
  }
  CHECK(context->memory().current().total() == 0);
}

TEST_CASE("batch_of makes one batch of given examples") {
  CHECK(checked(batch_of(Numbers{5}, Indices{4, 0, 4})) == Indices{4, 0, 4});
  const auto none = batch_of(Numbers{5}, Indices{});
  CHECK(none.first.shape() == Shape{0, 2});
  CHECK(none.second.dtype() == DType::kI64);
  CHECK(none.second.device() == default_device());
  CHECK(batch_of(Numbers{5}, Indices{1}, kNull).first.device() == kNull);
}

TEST_CASE("a loader refuses wrong options") {
  const auto make = [](const DataLoaderOptions& options) {
    DataLoader loader(Numbers{3}, options);
  };
  CHECK_THROWS_WITH(make({.batch_size = 0}), Contains("[nn.DataLoader] batch_size is 0"));
  CHECK_THROWS_WITH(make({.ranks = 0}), Contains("rank 0 of 0 ranks"));
  CHECK_THROWS_WITH(make({.ranks = 2, .rank = 2}), Contains("rank 2 of 2 ranks"));
  CHECK_THROWS_WITH(make({.ranks = 2, .rank = -1}), Contains("rank -1 of 2 ranks"));
  CHECK_THROWS_WITH(make({.workers = -1}), Contains("workers is -1"));
  CHECK_THROWS_WITH(make({.prefetch = 0}), Contains("prefetch is 0"));
  DataLoader loader(Numbers{3}, {.batch_size = 2});
  CHECK_THROWS_WITH(loader.set_epoch(-1), Contains("epoch -1; epochs count from 0"));
  CHECK_THROWS_WITH(loader.set_epoch(0, 3), Contains("batch 3 of an epoch of 2"));
  CHECK_THROWS_WITH(loader.set_epoch(0, -1), Contains("batch -1 of an epoch of 2"));
  CHECK_THROWS_AS(loader.set_epoch(0, 3), InvalidArgument);
  auto outer = loader.begin();
  *outer;
  auto inner = loader.begin();
  CHECK_THROWS_AS(*outer, StateError);
  CHECK_THROWS_WITH(*outer, Contains("another loop over this loader has begun"));
  CHECK(checked(*inner).size() == 2);
}

}  // namespace
}  // namespace tessera::nn::data
