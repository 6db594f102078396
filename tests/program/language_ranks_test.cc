// Language models trained on several ranks: every model, launch mode, sharding mode and precision.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "tessera/tests/models/data/test_data.h"
#include "tessera/tests/program/run_program.h"

namespace tessera::testing {
namespace {

using Words = std::vector<std::string>;

std::string line_with(const std::string& text, const std::string& part) {
  for (const std::string& line : lines_of(text))
    if (line.find(part) != std::string::npos) return line;
  return "";
}

TEST_CASE("threads and processes write the same bits, and ranks the same losses") {
  const std::string model = GENERATE("transformer", "gpt", "llama", "moe");
  const Words more = {"--steps", "6", "--dropout", "0.1", "--ranks"};
  const auto with = [&](const std::string& ranks, const std::string& launch) {
    Words words = more;
    words.insert(words.end(), {ranks, "--launch", launch});
    return run_tiny(model, words);
  };
  const TinyRun one = with("1", "threads"), three = with("3", "threads");
  CHECK(three.metrics() == with("3", "processes").metrics());
  const std::vector<double> left = one.losses(), right = three.losses();
  REQUIRE(left.size() == 6);
  REQUIRE(right.size() == 6);
  for (std::size_t i = 0; i < left.size(); ++i) CHECK(right[i] == Approx(left[i]).epsilon(1e-5));
}

TEST_CASE("every way to shard, every precision and recompute train") {
  const Words more = GENERATE(
      Words{"--ranks", "4", "--shard", "hybrid", "--mesh", "2x2"}, Words{"--shard", "grad"},
      Words{"--shard", "replicate"}, Words{"--tensor-parallel", "2"}, Words{"--precision", "bf16"},
      Words{"--precision", "f16"}, Words{"--precision", "f64"}, Words{"--recompute", "full"},
      Words{"--recompute", "selective", "--micro-batch", "2"}, Words{"--optimizer", "sgd"});
  CAPTURE(more);
  Words words = {"--launch", "threads", "--steps", "5"};
  words.insert(words.end(), more.begin(), more.end());
  const TinyRun made = run_tiny("gpt", words);
  CHECK(made.losses().back() < made.losses().front());
  CHECK(run_program({"eval", "--run", made.folder}).out ==
        line_with(made.result.out, "validation loss") + "\n");
}

// A port that no process uses at the moment.
std::string free_port() {
  const int socket_id = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  REQUIRE(bind(socket_id, reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(getsockname(socket_id, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  close(socket_id);
  return std::to_string(ntohs(address.sin_port));
}

TEST_CASE("two hosts are one run, of which the first one writes") {
  const std::string first = fresh_folder("first"), second = fresh_folder("second") + "/none";
  const std::string endpoint = "127.0.0.1:" + free_port();
  const auto words = [&](const std::string& node, const std::string& out) {
    return train_tiny("gpt", {"--steps", "6", "--nnodes", "2", "--node-rank", node, "--out", out,
                              "--shard", "hybrid", "--rdzv-endpoint", endpoint});
  };
  Program other(words("1", second));
  const ProgramResult result = run_program(words("0", first));
  INFO("standard error: " << result.err);
  REQUIRE(result.exit_code == 0);
  const ProgramResult second_result = other.wait();
  CHECK(second_result.exit_code == 0);
  CHECK(second_result.out.empty());
  CHECK_FALSE(std::filesystem::exists(second));
  CHECK(line_with(result.out, "training ")
            .ends_with("4 ranks as processes, mesh 2 x 2, sharding hybrid"));
  const TinyRun whole =
      run_tiny("gpt", {"--steps", "6", "--ranks", "4", "--shard", "hybrid", "--launch", "threads"});
  CHECK(TinyRun{result, first}.losses() == whole.losses());
}

}  // namespace
}  // namespace tessera::testing
