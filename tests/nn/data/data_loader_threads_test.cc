// What workers do: how far ahead they read, what they throw, and how a loader ends.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>

#include "tessera/autograd/grad_mode.h"
#include "tessera/nn/data/data_loader.h"
#include "tessera/nn/data/datasets.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/streams/stream.h"

namespace tessera::nn::data {
namespace {

using Catch::Matchers::Contains;

// Counts reads; throws, or blocks from a given read on.
struct Watched {
  static constexpr std::int64_t kSize = 10;
  std::int64_t size() const { return kSize; }
  std::int64_t get(std::int64_t index) const {
    const int number = ++reads;
    {
      const std::lock_guard lock(mutex);
      threads.insert(std::this_thread::get_id());
    }
    while (number > hold_after) std::this_thread::yield();
    if (index == bad) throw DataError("the disk is gone");
    if (index == strange) throw 7;
    return index;
  }
  mutable std::atomic<int> reads{0};
  mutable std::mutex mutex;
  mutable std::set<std::thread::id> threads;
  std::atomic<int> hold_after{1'000'000};
  std::atomic<std::int64_t> bad{-1}, strange{-1};
};

template <class Batch>
std::int64_t first_of(const Batch& batch) {
  return batch.template to_vector<std::int64_t>().front();
}

TEST_CASE("what get throws comes out of its batch, with the sample") {
  const int workers = GENERATE(0, 1, 3);
  Watched data;
  data.bad = 5;
  DataLoader loader(data, {.batch_size = 2, .workers = workers});
  CHECK(first_of(loader.load(1)) == 0);
  CHECK(first_of(loader.load(2)) == 2);
  CHECK_THROWS_WITH(loader.load(3), "the disk is gone (sample 5 of the data set)");
  CHECK(loader.position().step == 2);
  CHECK(first_of(loader.load(4)) == 6);
  CHECK_THROWS_AS(loader.load(3), DataError);  // thrown again when the step is requested again
  CHECK_THROWS_AS(loader.load(3), DataError);
  data.bad = -1;
  CHECK(first_of(loader.load(3)) == 4);
  data.strange = 9;
  CHECK_THROWS_WITH(loader.load(5), Contains("[nn.DataLoader] sample 9 of the data set failed"));

  data.bad = 3;
  int batches = 0;
  const auto loop = [&] {
    for (auto batch : loader) batches += batch.dim(0) == 2;
  };
  CHECK_THROWS_AS(loop(), DataError);
  CHECK(batches == 1);
  data.bad = -1;
  data.strange = -1;
  loop();  // the loader goes on with the next epoch
  CHECK(batches == 6);
}

TEST_CASE("an error keeps its class, or is nested in one of Tessera's") {
  struct Throwing {
    std::function<void()> f;
    std::int64_t size() const { return 1; }
    std::int64_t get(std::int64_t) const {
      f();
      return 0;
    }
  };
  const int workers = GENERATE(0, 1);
  const auto load = [&](std::function<void()> f) {
    DataLoader loader(Throwing{std::move(f)}, {.workers = workers});
    loader.load(1);
  };
  const char* text = "x (sample 0 of the data set)";
  CHECK_THROWS_AS(load([] { throw InvalidArgument("x"); }), InvalidArgument);
  CHECK_THROWS_AS(load([] { throw StateError("x"); }), StateError);
  CHECK_THROWS_AS(load([] { throw OutOfMemory("x"); }), OutOfMemory);
  CHECK_THROWS_AS(load([] { throw DeviceError("x"); }), DeviceError);
  CHECK_THROWS_AS(load([] { throw TimeoutError("x"); }), TimeoutError);
  CHECK_THROWS_WITH(load([] { throw InvalidArgument("x"); }), text);
  CHECK_THROWS_WITH(load([] { throw StateError("x"); }), text);
  CHECK_THROWS_WITH(load([] { throw OutOfMemory("x"); }), text);
  CHECK_THROWS_WITH(load([] { throw DeviceError("x"); }), text);
  CHECK_THROWS_WITH(load([] { throw TimeoutError("x"); }), text);
  CHECK_THROWS_WITH(load([] { throw CheckpointError("x"); }), text);
  try {
    load([] { throw std::out_of_range("beyond"); });
    FAIL("nothing was thrown");
  } catch (const Error& error) {
    CHECK(std::string(error.what()) == "[nn.DataLoader] beyond (sample 0 of the data set)");
    CHECK_THROWS_AS(std::rethrow_if_nested(error), std::out_of_range);
  }
}

TEST_CASE("what a transform or collate throws comes out too") {
  const int workers = GENERATE(0, 2);
  Watched data;
  Transformed doubled(data, [](std::int64_t index) {
    TESSERA_CHECK(index != 3, "doubled", "3 is not wanted");
    return 2 * index;
  });
  DataLoader loader(doubled, {.batch_size = 2, .workers = workers});
  CHECK(first_of(loader.load(1)) == 0);
  CHECK_THROWS_WITH(loader.load(2), "[doubled] 3 is not wanted (sample 3 of the data set)");
  CHECK(first_of(loader.load(3)) == 8);
  DataLoader collating(data, {.batch_size = 2, .workers = workers},
                       [](std::span<const std::int64_t> examples) {
                         TESSERA_CHECK(examples[0] != 4, "mine", "4 is not wanted");
                         return Tensor::from_vector<std::int64_t>({examples[0]}, {1});
                       });
  collating.load(2);
  CHECK_THROWS_WITH(collating.load(3), "[mine] 4 is not wanted");
  DataLoader scalars(data, {.workers = workers},
                     [](std::span<const std::int64_t>) { return Tensor::scalar(1); });
  CHECK_THROWS_WITH(scalars.load(1), Contains("a tensor of the batch has shape [] on cpu") &&
                                         Contains("it needs rows in dim 0, on the CPU"));
}

TEST_CASE("as many batches as told are made ahead, from the first on") {
  Watched data;
  DataLoader loader(data, {.batch_size = 1, .workers = 3, .prefetch = 2});
  CHECK(data.reads == 0);
  loader.load(1);
  while (data.reads < 7) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(data.reads == 7);
  loader.load(2);
  while (data.reads < 8) std::this_thread::yield();
  CHECK_FALSE(data.threads.contains(std::this_thread::get_id()));
  CHECK(data.threads.size() <= 3);
}

TEST_CASE("steps are made ahead into the next epoch, loops are not") {
  Watched data;
  DataLoader loader(data, {.batch_size = 5, .workers = 1, .prefetch = 4});
  loader.load(2);
  while (data.reads < 25) std::this_thread::yield();
  data.reads = 0;
  DataLoader looping(data, {.batch_size = 5, .workers = 1, .prefetch = 4});
  for (auto batch : looping) CHECK(batch.dim(0) == 5);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(data.reads == 10);
}

TEST_CASE("several batches are made at the same time") {
  struct Pairs {  // two threads have to be inside get() at once
    mutable std::atomic<int> inside{0};
    std::int64_t size() const { return 2; }
    std::int64_t get(std::int64_t index) const {
      ++inside;
      while (inside < 2) std::this_thread::yield();
      return index;
    }
  };
  const Pairs pairs;
  DataLoader loader(pairs, {.batch_size = 1, .workers = 2, .prefetch = 1});
  int batches = 0;
  for (auto batch : loader) batches += batch.dim(0) == 1;
  CHECK(batches == 2);
}

TEST_CASE("a slow batch holds back the ones after it, in order") {
  struct Slow {
    std::int64_t size() const { return 12; }
    std::int64_t get(std::int64_t index) const {
      if (index % 4 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return index;
    }
  };
  DataLoader loader(Slow{}, {.batch_size = 1, .workers = 4});
  std::int64_t next = 0;
  for (auto batch : loader) CHECK(first_of(batch) == next++);
  CHECK(next == 12);
}

TEST_CASE("a loader ends while it reads, and before it was ever used") {
  const int workers = GENERATE(1, 3);
  Watched data;
  { DataLoader unused(data, {.batch_size = 2, .workers = workers}); }
  CHECK(data.reads == 0);
  data.hold_after = 10;  // the first batch passes, the later ones block in their first reads
  auto loader = std::make_unique<DataLoader<const Watched&>>(
      data, DataLoaderOptions{.batch_size = 10, .workers = workers});
  const auto end = [&](const auto& act) {
    std::atomic<bool> ended{false}, ended_early{false};
    std::thread opener([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ended_early = ended.load();
      data.hold_after = 1'000'000;
    });
    act();
    ended = true;
    opener.join();
    CHECK_FALSE(ended_early);
  };
  if (workers == 1) {
    loader->load(1);
    while (data.reads < 11) std::this_thread::yield();
    end([&] { loader.reset(); });
    CHECK(data.reads == 11);  // the sample in progress, and none after it
  } else {
    data.hold_after = 0;
    std::thread starter([&] { loader->load(1); });
    while (data.reads < workers) std::this_thread::yield();
    data.hold_after = 1'000'000;
    starter.join();
    loader.reset();  // whatever the other workers do now
  }
}

TEST_CASE("a loop that ends early stops the reading") {
  Watched data;
  DataLoader loader(data, {.batch_size = 1, .workers = 1, .prefetch = 3});
  for (auto batch : loader) {
    CHECK(first_of(batch) == 0);
    while (data.reads < 4) std::this_thread::yield();
    break;
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(data.reads == 4);
  for (auto batch : loader) {
    CHECK(first_of(batch) == 0);
    break;
  }
}

TEST_CASE("get sees the same surroundings on any thread") {
  struct Surroundings {
    std::int64_t size() const { return 3; }
    std::vector<std::int64_t> get(std::int64_t) const {
      const auto& context = current_rank_context();
      return {context->rank(),
              context->world_size(),
              context->trace() != nullptr,
              grad_enabled(),
              default_device().is_cpu(),
              current_stream(kCpu).kind() == StreamKind::kInline};
    }
  };
  const int workers = GENERATE(0, 2);
  const RankScope rank(std::make_shared<RankContext>(3, 5, 1));
  const DefaultDeviceScope device(kNull);
  const StreamGuard queued(DeviceStream::create(kCpu, StreamKind::kQueued, "mine"));
  DataLoader loader(Surroundings{}, {.batch_size = 3, .workers = workers, .device = kCpu});
  for (const auto& columns : loader) {
    std::vector<std::int64_t> first;
    for (const Tensor& column : columns) first.push_back(first_of(column));
    CHECK(first == std::vector<std::int64_t>{3, 5, 0, 0, 1, 1});
  }
  CHECK(default_device() == kNull);
  CHECK(grad_enabled());
  CHECK(current_stream(kCpu).kind() == StreamKind::kQueued);
}

}  // namespace
}  // namespace tessera::nn::data
