// How fast checkpoints are written and read, beside plain files on the same disk:
//
//     tools/bazel run //tools/bench:bench_checkpoint -- [FOLDER [MIB]]
//
// The state is MIB (default 512) of f32 parameters, sharded over 1, 2 and 4 ranks, which are threads. FOLDER
// is on the disk to measure (default: a temporary folder). "plain" writes as many bytes with one thread in
// pieces of 1 MiB and syncs the file, as `dd bs=1M conv=fsync` does, and reads them again; the files are in
// the page cache then. Rounds alternate between plain files and checkpoints; every figure is the median of
// seven. The stall of an asynchronous save is the time of the call. "load needs" is how much memory the process
// has at most during the first load of all ranks, beyond what it has before; the parameters are there already.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tessera/distributed/collectives.h"
#include "tessera/distributed/launch/launch.h"
#include "tessera/fsdp/checkpoint/async_saver.h"
#include "tessera/fsdp/checkpoint/checkpoint.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/sequential.h"

namespace tessera {
namespace {

constexpr int kRounds = 7;
constexpr std::int64_t kWidth = 1024;  // a layer has 4 MiB

template <class Body>
double seconds(const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void require(bool holds, const char* what) {
  if (holds) return;
  std::perror(what);
  std::exit(1);
}

void write_plain(const std::string& path, std::int64_t mib) {
  const std::vector<char> piece(1 << 20, 1);
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  require(file >= 0, path.c_str());
  for (std::int64_t i = 0; i < mib; ++i)
    require(::write(file, piece.data(), piece.size()) == std::ssize(piece), path.c_str());
  require(::fsync(file) == 0, path.c_str());
  ::close(file);
}

void read_plain(const std::string& path) {
  std::vector<char> piece(1 << 20);
  const int file = ::open(path.c_str(), O_RDONLY);
  require(file >= 0, path.c_str());
  while (::read(file, piece.data(), piece.size()) > 0) {
  }
  ::close(file);
}

// A figure of /proc/self/status in MiB: "VmRSS", "VmHWM" (the most since forget_peak()).
double process_mib(const std::string& name) {
  std::ifstream status("/proc/self/status");
  std::string word;
  double kib = 0;
  while (status >> word)
    if (word == name + ":") status >> kib;
  return kib / 1024;
}
void forget_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

// Times of one rank's world, in seconds, and MiB.
struct Times {
  std::vector<double> plain_write, save, plain_read, load, stall, load_mib;
};

class Benchmark {
 public:
  Benchmark(distributed::World& world, std::string folder, std::int64_t mib)
      : world_(world), folder_(std::move(folder)), mib_(mib) {
    for (std::int64_t layer = 0; layer < mib / 4; ++layer)
      model_.add<nn::Linear>({.in = kWidth, .out = kWidth, .bias = false});
    for (std::int64_t layer = 0; layer < mib / 4; ++layer)
      fsdp::fully_shard(model_.at(layer), {.mesh = world.mesh()});
    fsdp::fully_shard(model_, {.mesh = world.mesh()});
    nn::initialize(model_, {.seed = 1});
  }

  Times run() {
    Times times;
    std::vector<double> ignored;
    for (int round = 0; round < kRounds; ++round) {
      const checkpoint::State state{.group = world_.group(), .model = &model_};
      const std::string path = folder_ + "/step-" + std::to_string(round);
      const std::string plain = folder_ + "/plain";
      on_first(times.plain_write, [&] { write_plain(plain, mib_); });
      on_all(times.save, [&] { checkpoint::save(path, state); });
      on_first(times.plain_read, [&] { read_plain(plain); });
      double before = 0;
      on_first(ignored, [&] {
        forget_peak();
        before = process_mib("VmRSS");
      });
      on_all(times.load, [&] { checkpoint::load(path, state); });
      times.load_mib.push_back(process_mib("VmHWM") - before);
      checkpoint::AsyncSaver saver;
      on_all(times.stall, [&] { saver.save(path + "0", state); });
      saver.wait();
      if (world_.rank() != 0) continue;
      std::filesystem::remove_all(path);
      std::filesystem::remove_all(path + "0");
    }
    return times;
  }

 private:
  template <class Body>
  void on_all(std::vector<double>& times, const Body& body) {
    distributed::barrier(*world_.group());
    times.push_back(seconds([&] {
      body();
      distributed::barrier(*world_.group());
    }));
  }
  template <class Body>
  void on_first(std::vector<double>& times, const Body& body) {
    on_all(times, [&] {
      if (world_.rank() == 0) body();
    });
  }

  distributed::World& world_;
  std::string folder_;
  std::int64_t mib_;
  nn::Sequential model_;
};

void measure(int ranks, const std::string& folder, std::int64_t mib) {
  Times times;
  const distributed::LaunchResult result =
      distributed::launch(0, nullptr, {.ranks = ranks, .mode = distributed::LaunchMode::kThreads},
                          [&](distributed::World& world) {
                            Benchmark benchmark(world, folder, mib);
                            const Times mine = benchmark.run();
                            if (world.rank() == 0) times = mine;
                          });
  if (!result.failure.empty()) {
    std::fprintf(stderr, "%s\n", result.failure.c_str());
    std::exit(1);
  }
  const auto rate = [mib](const std::vector<double>& all) {
    return static_cast<double>(mib) / median(all);
  };
  std::printf(
      "%d ranks  plain write %6.0f MiB/s  save %6.0f  ratio %.2f   plain read %6.0f  load "
      "%6.0f  ratio %.2f   load needs %5.1f MiB   stall %6.1f ms\n",
      ranks, rate(times.plain_write), rate(times.save),
      median(times.save) / median(times.plain_write), rate(times.plain_read), rate(times.load),
      median(times.load) / median(times.plain_read), times.load_mib.front(),
      median(times.stall) * 1e3);
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  std::string folder =
      argc > 1 ? argv[1] : (std::filesystem::temp_directory_path() / "bench_checkpoint").string();
  const std::int64_t mib = argc > 2 ? std::atoll(argv[2]) : 512;
  std::filesystem::create_directories(folder);
  for (const int ranks : {1, 2, 4}) tessera::measure(ranks, folder, mib);
  std::filesystem::remove(folder + "/plain");
}
