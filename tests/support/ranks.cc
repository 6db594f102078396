#include "tessera/tests/support/ranks.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <numeric>
#include <sstream>
#include <thread>

#include "tessera/distributed/collectives.h"
#include "tessera/distributed/process_group_local.h"
#include "tessera/distributed/rank_runner.h"
#include "tessera/tests/support/early_main.h"
#include "tessera/tests/support/gpu_gate.h"
#include "tessera/tests/support/skip.h"
#include "tessera/tests/support/test_device.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCaseVariable = "TESSERA_TEST_RANK_CASE";
constexpr const char* kReportVariable = "TESSERA_TEST_RANK_REPORT";

struct RegisteredCase {
  void (*body)(RankTest&) = nullptr;
  RankTestOptions options;
};

std::map<std::string, RegisteredCase>& cases() {
  static std::map<std::string, RegisteredCase> map;
  return map;
}

using Report = std::function<void(int rank, const std::string& failure)>;

// The GPUs that threads share: as many as the target asks for, though there may be more.
std::vector<int> shared_gpus() {
  const char* text = std::getenv("TESSERA_TEST_GPUS");
  std::vector<int> gpus(text == nullptr ? 0 : static_cast<std::size_t>(std::atoi(text)));
  std::iota(gpus.begin(), gpus.end(), 0);
  return gpus;
}

std::function<void(distributed::World&)> reporting_body(const RegisteredCase& test,
                                                        const Report& report) {
  return [&test, report](distributed::World& world) {
    RankTest t(world);
    const auto deliver = [&] {
      for (const std::string& failure : t.failures()) report(world.rank(), failure);
    };
    try {
      test.body(t);
    } catch (...) {
      deliver();
      throw;
    }
    deliver();
  };
}

// A rank process: runs its rank of the one case named by the environment.
int run_case_of_rank_process(int argc, char** argv) {
  const char* name = std::getenv(kCaseVariable);
  const char* report_folder = std::getenv(kReportVariable);
  if (!distributed::is_rank_process() || name == nullptr || report_folder == nullptr) return -1;
  const RegisteredCase& test = cases().at(name);
  const Report report = [report_folder](int rank, const std::string& failure) {
    std::ofstream(fmt::format("{}/rank-{}.txt", report_folder, rank), std::ios::app)
        << failure << '\0';
  };
  // The parent's earlier launches are passed over; its own one does not return.
  for (;;)
    distributed::launch(argc, argv, rank_launch_options(test.options, 1),
                        reporting_body(test, report));
}

const EarlyMainRegistration early_main(&run_case_of_rank_process);

// A folder for the failures that rank processes report, and the environment that tells them so.
class ReportFolder {
 public:
  explicit ReportFolder(const std::string& case_name) {
    std::string pattern = (fs::temp_directory_path() / "tessera-report-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr)
      throw std::runtime_error("cannot make a folder like " + pattern);
    path_ = pattern;
    setenv(kCaseVariable, case_name.c_str(), 1);
    setenv(kReportVariable, path_.c_str(), 1);
  }
  ~ReportFolder() {
    unsetenv(kCaseVariable);
    unsetenv(kReportVariable);
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ReportFolder(const ReportFolder&) = delete;
  ReportFolder& operator=(const ReportFolder&) = delete;

  std::vector<std::string> failures(int world) const {
    std::vector<std::string> out;
    for (int rank = 0; rank < world; ++rank) {
      std::ifstream in(fmt::format("{}/rank-{}.txt", path_, rank));
      for (std::string text; std::getline(in, text, '\0');)
        out.push_back(fmt::format("rank {}: {}", rank, text));
    }
    return out;
  }

 private:
  std::string path_;
};

struct WorldRun {
  std::vector<std::string> failures;  // of checks
  std::string failure;                // of the run
};

WorldRun run_threads(const RegisteredCase& test, int world) {
  WorldRun run;
  std::mutex mutex;
  const Report report = [&](int rank, const std::string& failure) {
    std::lock_guard lock(mutex);
    run.failures.push_back(fmt::format("rank {}: {}", rank, failure));
  };
  run.failure = distributed::launch(0, nullptr, rank_launch_options(test.options, world),
                                    reporting_body(test, report))
                    .failure;
  return run;
}

WorldRun run_processes(const std::string& name, const RegisteredCase& test, int world) {
  const ReportFolder folder(name);
  std::string program = "rank-test";
  char* argv[] = {program.data(), nullptr};
  WorldRun run;
  run.failure = distributed::launch(1, argv, rank_launch_options(test.options, world),
                                    [](distributed::World&) {})
                    .failure;
  run.failures = folder.failures(world);
  return run;
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

RankCase::RankCase(const char* name, void (*body)(RankTest&), RankTestOptions options) {
  cases()[name] = {body, std::move(options)};
}

// Those of the case that can be run: by NCCL each rank has a GPU.
std::vector<int> worlds_of(const RegisteredCase& test) {
  std::vector<int> worlds = test.options.worlds.empty() ? test_worlds() : test.options.worlds;
  if (test_transport() == "nccl")
    std::erase_if(worlds, [](int world) { return world > gpu_count(); });
  return worlds;
}

void run_rank_case(const std::string& name) {
  const RegisteredCase& test = cases().at(name);
  const std::vector<int> worlds = worlds_of(test);
  if (worlds.empty()) skip(fmt::format("has no world for {} GPUs", gpu_count()));
  for (int world : worlds) {
    const WorldRun run =
        test_transport() == "gloo" ? run_processes(name, test, world) : run_threads(test, world);
    for (const std::string& failure : run.failures)
      FAIL_CHECK("world " << world << ", " << failure);
    const std::string& expected = test.options.expect_failure;
    if (expected.empty() && !run.failure.empty())
      FAIL_CHECK("world " << world << ", " << run.failure);
    if (!expected.empty() && run.failure.find(expected) == std::string::npos)
      FAIL_CHECK("world " << world << " should fail with \"" << expected << "\" but said \""
                          << run.failure << '"');
  }
  SUCCEED();
}

std::string test_transport() {
  const char* transport = std::getenv("TESSERA_TEST_TRANSPORT");
  return transport == nullptr ? "local" : transport;
}

std::vector<int> test_worlds() {
  const char* text = std::getenv("TESSERA_TEST_WORLDS");
  std::istringstream in(text == nullptr ? "1,2,3,5" : text);
  std::vector<int> worlds;
  for (std::string world; std::getline(in, world, ',');) worlds.push_back(std::stoi(world));
  return worlds;
}

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
      .checked = options.checked};
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

}  // namespace tessera::testing
