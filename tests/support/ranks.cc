#include "tessera/tests/support/ranks.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <numeric>
#include <sstream>
#include <thread>

#include <catch2/catch.hpp>

#include "tessera/distributed/collectives.h"
#include "tessera/distributed/launch/rank_runner.h"
#include "tessera/distributed/transports/process_group_local.h"
#include "tessera/tests/support/test_main.h"

namespace tessera::testing {
namespace {

// The GPUs that rank threads share: the number that the target requests, even if there are more.
std::vector<int> shared_gpus() {
  const char* text = std::getenv("TESSERA_TEST_GPUS");
  std::vector<int> gpus(text == nullptr ? 0 : static_cast<std::size_t>(std::atoi(text)));
  std::iota(gpus.begin(), gpus.end(), 0);
  return gpus;
}

std::vector<int> world_list(const char* text) {
  std::istringstream in(text);
  std::vector<int> worlds;
  for (std::string world; std::getline(in, world, ',');) worlds.push_back(std::stoi(world));
  return worlds;
}

}  // namespace

void RankTest::fail(const std::string& text) {
  failures_.push_back(names_.empty() ? text
                                     : fmt::format("[{}] {}", fmt::join(names_, " | "), text));
}

bool RankTest::check_result(const CloseResult& result, const std::string& what) {
  return check(result.ok, "{}{}{}", what, what.empty() ? "" : ": ", result.message);
}

bool RankTest::check_close(const Tensor& actual, const Tensor& expected, const std::string& what) {
  return check_result(all_close(actual, expected), what);
}

bool RankTest::check_close(const Tensor& actual, const Tensor& expected, Tolerance tolerance,
                           const std::string& what) {
  return check_result(all_close(actual, expected, tolerance), what);
}

bool RankTest::check_equal(const Tensor& actual, const Tensor& expected, const std::string& what) {
  return check_result(all_equal(actual, expected), what);
}

std::vector<std::string> RankTest::gather_text(const std::string& mine) {
  const auto count = static_cast<std::int64_t>(mine.size());
  const Tensor length = Tensor::from_vector<std::int64_t>({count}, {1});
  distributed::all_reduce(group(), std::span(&length, 1), distributed::ReduceOp::kMax,
                          "gather_text");
  const std::int64_t width =
      length.item<std::int64_t>() + static_cast<std::int64_t>(sizeof(std::int64_t));
  std::vector<std::uint8_t> row(static_cast<std::size_t>(width));
  std::memcpy(row.data(), &count, sizeof(count));
  std::copy(mine.begin(), mine.end(), row.begin() + sizeof(count));
  const Tensor part = Tensor::from_vector<std::uint8_t>(row, {width});
  const Tensor whole = Tensor::empty({width * size()}, {.dtype = DType::kU8});
  distributed::all_gather(group(), std::span(&part, 1), std::span(&whole, 1), "gather_text");
  const std::vector<std::uint8_t> bytes = whole.to_vector<std::uint8_t>();
  std::vector<std::string> out;
  for (std::int64_t r = 0; r < size(); ++r) {
    const std::uint8_t* begin = bytes.data() + r * width;
    std::int64_t characters = 0;
    std::memcpy(&characters, begin, sizeof(characters));
    out.emplace_back(reinterpret_cast<const char*>(begin) + sizeof(characters),
                     static_cast<std::size_t>(characters));
  }
  return out;
}

bool RankTest::check_same_on_all_ranks(const std::string& mine, const std::string& what) {
  const std::vector<std::string> texts = gather_text(mine);
  for (std::size_t r = 0; r < texts.size(); ++r) {
    if (!check(texts[r] == mine, "{} differs: here \"{}\", on rank {} \"{}\"", what, mine, r,
               texts[r]))
      return false;
  }
  return true;
}

std::string test_transport() {
  const char* transport = std::getenv("TESSERA_TEST_TRANSPORT");
  return transport == nullptr ? "local" : transport;
}

std::vector<int> test_worlds() {
  const char* text = std::getenv("TESSERA_TEST_WORLDS");
  return world_list(text == nullptr ? "1,2,3,5" : text);
}

std::vector<int> only_worlds() {
  const char* text = std::getenv("TESSERA_TEST_ONLY_WORLDS");
  return world_list(text == nullptr ? "" : text);
}

namespace {

// Comparing doubles the number of exchanges between threads. Suites whose ranks compare all values
// with an unsharded reference do without.
bool checks_collectives() {
  const char* text = std::getenv("TESSERA_TEST_CHECKED");
  return text == nullptr || std::string(text) != "0";
}

}  // namespace

distributed::LaunchOptions rank_launch_options(const RankTestOptions& options, int world) {
  const bool nccl = test_transport() == "nccl";
  return {
      .ranks = world,
      .mode = test_transport() == "gloo" ? distributed::LaunchMode::kProcesses
                                         : distributed::LaunchMode::kThreads,
      .device = nccl ? Device{DeviceType::kCuda, 0} : test_device(),
      .gpus = nccl ? std::vector<int>() : shared_gpus(),
      .gpu_transport = nccl ? distributed::GpuTransport::kNccl : distributed::GpuTransport::kLocal,
      .cpu_compute = options.cpu_compute,
      .timeout = options.timeout,
      .checked = options.checked.value_or(checks_collectives())};
}

int seeds_world() {
  const bool a_gpu_each = test_transport() == "nccl";
  return a_gpu_each ? std::clamp(gpu_count(), 1, 8) : 4;
}

std::vector<std::exception_ptr> run_ranks(int world_size,
                                          const std::function<void(distributed::World&)>& body,
                                          const RunRanksOptions& options) {
  auto groups = distributed::make_local_groups("world", world_size, options.timeout);
  std::vector<std::exception_ptr> errors(groups.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < groups.size(); ++r) {
    threads.emplace_back([&, r, group = std::move(groups[r])] {
      const auto failure = distributed::run_rank(
          {.device = test_device(), .cpu_compute = options.cpu_compute, .checked = true}, group,
          body);
      if (failure) errors[r] = failure->error;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

std::vector<std::string> exception_texts(const std::vector<std::exception_ptr>& errors) {
  std::vector<std::string> texts;
  for (const std::exception_ptr& error : errors)
    texts.push_back(error ? distributed::describe_failure(-1, error).text : "");
  return texts;
}

namespace {

WorldRun run_on_threads(const RegisteredCase& test, int world) {
  WorldRun run;
  std::mutex mutex;
  const auto body = [&](distributed::World& on) {
    RankTest t(on);
    const auto deliver = [&] {
      std::lock_guard lock(mutex);
      for (const std::string& failure : t.failures())
        run.failures.push_back(fmt::format("rank {}: {}", t.rank(), failure));
    };
    try {
      test.body(t);
    } catch (...) {
      deliver();
      throw;
    }
    deliver();
  };
  run.failure =
      distributed::launch(0, nullptr, rank_launch_options(test.options, world), body).failure;
  return run;
}

// Asserts; on the main thread.
void judge(const RegisteredCase& test, int world, const WorldRun& run) {
  const std::string where = fmt::format("world {} ({}), ", world, test_transport());
  const std::string& expected = test.options.expect_failure;
  std::vector<std::string> wrong = run.failures;
  if (expected.empty() && !run.failure.empty()) wrong.push_back(run.failure);
  if (!expected.empty() && run.failure.find(expected) == std::string::npos)
    wrong.push_back(fmt::format("should fail with \"{}\" but said \"{}\"", expected, run.failure));
  if (wrong.empty()) return;
  // A world that the case does not name may be one that the target does not have either.
  repeat_with(fmt::format(
      "{}={}", test.options.worlds.empty() ? "TESSERA_TEST_WORLDS" : "TESSERA_TEST_ONLY_WORLDS",
      world));
  for (const std::string& failure : wrong) FAIL_CHECK(where << failure);
}

}  // namespace

std::map<std::string, RegisteredCase>& rank_cases() {
  static std::map<std::string, RegisteredCase> map;
  return map;
}

RankCase::RankCase(const char* name, void (*body)(RankTest&), RankTestOptions options) {
  rank_cases()[name] = {body, std::move(options)};
}

std::vector<int> worlds_of(const RegisteredCase& test) {
  std::vector<int> worlds = test.options.worlds.empty() ? test_worlds() : test.options.worlds;
  if (const std::vector<int> only = only_worlds(); !only.empty() && !worlds.empty()) {
    std::vector<int> sorted = worlds;
    std::sort(sorted.begin(), sorted.end());
    const auto several = std::find_if(sorted.begin(), sorted.end(), [](int w) { return w > 1; });
    const int smallest = several == sorted.end() ? sorted.front() : *several;
    std::erase_if(worlds, [&](int world) {
      return std::find(only.begin(), only.end(), world) == only.end();
    });
    if (worlds.empty()) worlds = {smallest};
  }
  if (test_transport() == "nccl")  // each rank has a GPU
    std::erase_if(worlds, [](int world) { return world > gpu_count(); });
  return worlds;
}

void run_rank_case(const std::string& name) {
  const RegisteredCase& test = rank_cases().at(name);
  if (const std::string& reason = test.options.skip_with_nccl;
      !reason.empty() && test_transport() == "nccl")
    return skip(reason);
  const std::vector<int> worlds = worlds_of(test);
  if (worlds.empty()) skip(fmt::format("has no world for {} GPUs", gpu_count()));
  for (int world : worlds) {
    judge(test, world,
          test_transport() == "gloo" ? run_on_processes(name, world) : run_on_threads(test, world));
  }
  SUCCEED();
}

}  // namespace tessera::testing
