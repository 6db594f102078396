// The cost of every collective on every transport:
//
//     tools/bazel run -c opt //tools/bench:bench_collectives [-- all_reduce all_gather ...]
//
// For each world, collective (of those named) and size: the time of a call (median over runs, of
// the slowest rank), and ratios of times measured in turns in the same runs:
//
// - copy: a memcpy, on all ranks at once, of as many bytes as the call delivers to a rank, divided
// by the call. Above 1.00 for rooted collectives, where not all ranks receive so much.
// - tcp: the same call between processes that share no memory, as if each were on a host of its own.
//   Above 1.00 shared memory is faster.
// - gloo: Gloo's own algorithm between the same processes, if it has one. Above 1.00 ours is
// faster.
// - checked: the same call in a checked group. 1.00 means no overhead.
//
// Sizes are in bytes: of one rank's input for all_reduce and broadcast, of all ranks' parts
// together for the others.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/distributed/checked.h"
#include "tessera/distributed/collectives.h"
#include "tessera/distributed/launch/launch.h"
#include "tessera/distributed/store/store.h"
#include "tessera/distributed/transports/process_group_gloo.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tools/bench/bench_plain_gloo.h"
#include "tessera/tools/bench/bench_timing.h"

namespace tessera {
namespace {

using distributed::ProcessGroup;
using distributed::World;
using Clock = std::chrono::steady_clock;

constexpr const char* kFolderVariable = "TESSERA_BENCH_FOLDER";
constexpr std::int64_t kSizes[] = {16, 16 << 10, 1 << 20, 64 << 20};

// One collective on its own tensors, and Gloo's version if there is one.
struct Subject {
  const char* name;
  std::function<void(ProcessGroup&)> ours;
  std::function<void(PlainGloo&)> plain;  // may be null
  std::int64_t bytes_in = 0;              // received by each rank
};

Tensor floats(std::int64_t bytes) { return full({bytes / 4}, 1); }
float* data(const Tensor& tensor) { return static_cast<float*>(tensor.storage().data()); }

std::vector<Subject> subjects(int size, std::int64_t bytes) {
  const Tensor whole = floats(bytes), other = floats(bytes), part = floats(bytes / size);
  const auto count = static_cast<std::size_t>(whole.numel());
  const auto part_count = static_cast<std::size_t>(part.numel());
  const std::int64_t whole_bytes = whole.numel() * 4, part_bytes = part.numel() * 4;
  const auto root_only = [whole](const ProcessGroup& group) {
    return group.rank() == 0 ? std::vector{whole} : std::vector<Tensor>{};
  };
  return {
      {"all_gather", [=](ProcessGroup& g) { all_gather(g, std::vector{part}, std::vector{whole}); },
       [=](PlainGloo& g) { g.all_gather(data(part), data(other), part_count); }, whole_bytes},
      {"reduce_scatter",
       [=](ProcessGroup& g) { reduce_scatter(g, std::vector{whole}, std::vector{part}); }, nullptr,
       whole_bytes},
      {"all_reduce", [=](ProcessGroup& g) { all_reduce(g, std::vector{whole}); },
       [=](PlainGloo& g) { g.all_reduce(data(whole), data(other), count); }, whole_bytes},
      {"all_to_all",
       [=](ProcessGroup& g) { all_to_all(g, std::vector{whole}, std::vector{other}); },
       [=](PlainGloo& g) { g.all_to_all(data(whole), data(other), count); }, whole_bytes},
      {"broadcast", [=](ProcessGroup& g) { broadcast(g, std::vector{whole}, 0); },
       [=](PlainGloo& g) { g.broadcast(data(whole), count, 0); }, whole_bytes},
      {"reduce", [=](ProcessGroup& g) { reduce(g, std::vector{whole}, 0); }, nullptr, whole_bytes},
      {"gather", [=](ProcessGroup& g) { gather(g, std::vector{part}, root_only(g), 0); }, nullptr,
       whole_bytes},
      {"scatter", [=](ProcessGroup& g) { scatter(g, root_only(g), std::vector{part}, 0); }, nullptr,
       part_bytes},
      {"ring of messages",
       [=](ProcessGroup& g) {
         const distributed::PeerTensor to{(g.rank() + 1) % g.size(), whole};
         const distributed::PeerTensor from{(g.rank() + g.size() - 1) % g.size(), other};
         exchange(g, std::span(&to, 1), std::span(&from, 1));
       },
       nullptr, whole_bytes},
  };
}

// The slowest rank's time of one call of `body`, in microseconds, equal on all ranks.
class Timer {
 public:
  explicit Timer(World& world) : group_(*world.group()) {}
  double slowest(const std::function<void()>& body, int repeats) {
    barrier(group_);
    const auto begin = Clock::now();
    for (int i = 0; i < repeats; ++i) body();
    const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
    const Tensor time = Tensor::from_vector<double>({took.count() / repeats}, {1});
    all_reduce(group_, std::span(&time, 1), distributed::ReduceOp::kMax);
    return time.item<double>();
  }

 private:
  ProcessGroup& group_;
};

// What a collective is compared with. Between threads there is nothing but the checked group.
struct Others {
  std::shared_ptr<ProcessGroup> checked;
  std::shared_ptr<ProcessGroup> tcp;
  std::unique_ptr<PlainGloo> plain;
};

struct Times {
  std::vector<double> ours, copy, plain, tcp, checked;
};

// A quotient of medians, or a dash.
std::string ratio(const std::vector<double>& times, double ours) {
  return times.empty() ? "    -" : fmt::format("{:5.2f}", median(times) / ours);
}

void measure(World& world, const Subject& subject, std::int64_t bytes, const Others& others) {
  Timer timer(world);
  const int repeats = bytes < 100'000 ? 50 : 1;
  const int runs = bytes < 1'000'000 ? 31 : 9;
  const auto copied = static_cast<std::size_t>(subject.bytes_in);
  std::vector<char> from(copied, 1), to(copied, 1);
  Times times;
  for (int run = -2; run < runs; ++run) {
    const double ours = timer.slowest([&] { subject.ours(*world.group()); }, repeats);
    const double copy =
        timer.slowest([&] { std::memcpy(to.data(), from.data(), copied); }, repeats);
    const double checked = timer.slowest([&] { subject.ours(*others.checked); }, repeats);
    double tcp = 0, plain = 0;
    if (others.tcp) tcp = timer.slowest([&] { subject.ours(*others.tcp); }, repeats);
    const bool has_plain = others.plain && subject.plain;
    if (has_plain) plain = timer.slowest([&] { subject.plain(*others.plain); }, repeats);
    if (run < 0) continue;
    times.ours.push_back(ours);
    times.copy.push_back(copy);
    times.checked.push_back(checked);
    if (others.tcp) times.tcp.push_back(tcp);
    if (has_plain) times.plain.push_back(plain);
  }
  if (world.rank() != 0) return;
  const double ours = median(times.ours);
  fmt::print(
      "  {:18} {:9} B {:10.1f} us {:7.2f} GB/s   copy {:5.2f}   tcp {}   gloo {}   checked "
      "{:5.2f}\n",
      subject.name, bytes, ours, static_cast<double>(subject.bytes_in) / ours * 1e-3,
      median(times.copy) / ours, ratio(times.tcp, ours), ratio(times.plain, ours),
      median(times.checked) / ours);
  std::fflush(stdout);
}

// The folder is empty at first, and of this world alone.
Others others_of(World& world, const char* folder) {
  Others others{.checked = distributed::checked(world.group()), .tcp = {}, .plain = {}};
  if (folder == nullptr) return others;
  const std::string path = fmt::format("{}/{}", folder, world.size());
  others.plain = std::make_unique<PlainGloo>(world.rank(), world.size(), path + "/plain");
  others.tcp = distributed::make_gloo_group(
      "tcp", {.rank = world.rank(),
              .size = world.size(),
              .store = std::make_shared<distributed::FolderStore>(path + "/tcp"),
              .node = fmt::format("rank {}", world.rank())});
  return others;
}

// `names`: of the collectives to measure; empty: all.
void measure_all(World& world, const std::vector<std::string>& names) {
  const Others others = others_of(world, std::getenv(kFolderVariable));
  for (std::int64_t bytes : kSizes) {
    for (const Subject& subject : subjects(world.size(), bytes)) {
      const bool is_named = std::find(names.begin(), names.end(), subject.name) != names.end();
      if (names.empty() || is_named) measure(world, subject, bytes, others);
    }
  }
}

int run(int argc, char** argv) {
  const bool is_rank = distributed::is_rank_process();
  const std::vector<std::string> names(argv + 1, argv + argc);
  for (const auto mode : {distributed::LaunchMode::kThreads, distributed::LaunchMode::kProcesses}) {
    const bool processes = mode == distributed::LaunchMode::kProcesses;
    for (int ranks : {2, 4}) {
      if (is_rank && !processes) continue;
      std::filesystem::path folder;
      if (processes && !is_rank) {
        std::string pattern = std::filesystem::temp_directory_path() / "tessera-bench-XXXXXX";
        if (mkdtemp(pattern.data()) == nullptr) return 1;
        folder = pattern;
        for (const char* part : {"plain", "tcp"})
          std::filesystem::create_directories(folder / std::to_string(ranks) / part);
        setenv(kFolderVariable, folder.c_str(), 1);
      }
      if (!is_rank)
        fmt::print("---- {} {}\n", ranks,
                   processes ? "processes (shared memory)" : "threads (local)");
      std::fflush(stdout);
      const auto result = distributed::launch(argc, argv, {.ranks = ranks, .mode = mode},
                                              [&](World& world) { measure_all(world, names); });
      if (!folder.empty()) std::filesystem::remove_all(folder);
      if (result.exit_code != 0) {
        fmt::print(stderr, "{}\n", result.failure);
        return 1;
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) { return tessera::run(argc, argv); }
