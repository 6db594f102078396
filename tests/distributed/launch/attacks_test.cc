// A run on two nodes, and processes that do not belong to it: they are dropped and logged, and the
// losses of the run are those of an undisturbed one to the last bit.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include "tessera/distributed/store/store_message.h"
#include "tessera/distributed/store/tcp_store.h"
#include "tessera/tensor/error.h"
#include "tessera/tests/distributed/launch/program.h"
#include "tessera/tests/distributed/store/attacks.h"

namespace tessera::distributed {
namespace {

using Catch::Matchers::Contains;
using std::chrono::milliseconds;

const Credentials kOurs{.secret = "the secret of this test", .job = "job-7"};

Endpoint free_endpoint() { return TcpStoreServer({.at = {.host = "127.0.0.1"}}).endpoint(); }

std::unique_ptr<Program> start_node(int node, const Endpoint& at) {
  setenv(kSecretVariable, kOurs.secret.c_str(), 1);
  return std::make_unique<Program>(
      fmt::format("trains --ranks 2 --nnodes 2 --node-rank {} --rdzv-endpoint {} --rdzv-id {}",
                  node, at.str(), kOurs.job));
}

// What the program itself prints.
std::string without_warnings(const std::string& output) {
  std::istringstream lines(output);
  std::string rest;
  for (std::string line; std::getline(lines, line);)
    if (!line.starts_with("warning: ")) rest += line + "\n";
  return rest;
}

const std::string& undisturbed_output() {
  static const std::string output = [] {
    Program threads("trains --ranks 4 --launch threads");
    REQUIRE(threads.exit_code() == 0);
    return threads.output();
  }();
  return output;
}

// Until node 0 listens there and has introduced itself.
Target wait_for_target(const Endpoint& at) {
  const std::string run = "2 nodes of 2 ranks, launch call 1";
  Target target{.at = at,
                .credentials = kOurs,
                .purpose = std::string(kStorePurpose),
                .duplicate = encode_parts({run, "node 0"}),
                .out_of_range = encode_parts({run, "rank 99"})};
  for (int i = 0; i < 2000; ++i) {
    std::this_thread::sleep_for(milliseconds(5));
    if (!connect_to(at, milliseconds(500)).socket) continue;
    RawClient client(at, kOurs, target.purpose);
    if (!client.shake_hands()) continue;
    client.send(FrameType::kJoin, target.out_of_range);
    if (client.receive()) return target;
  }
  FAIL("node 0 does not listen");
  return target;
}

}  // namespace

TEST_CASE("an attack does not change what a run computes", "[attacks]") {
  const NamedAttack& attack = all_attacks()[GENERATE(range(std::size_t{0}, std::size_t{8}))];
  INFO(attack.name);
  const Endpoint at = free_endpoint();
  const auto zero = start_node(0, at);
  const Target target = wait_for_target(at);
  zero->wait_for("rank 99 is not one of");  // node 0 has come before, so its number is taken
  const std::vector<Socket> connections = attack.start(target);
  // The attack goes on while the other node comes, its ranks are started, and all connect.
  std::atomic<bool> done{false};
  std::thread again([&] {
    if (connections.size() == 1) send_slowly(connections[0], first_message(), milliseconds(20000));
    while (!done && connections.empty()) {
      try {
        attack.start(target);
      } catch (const StateError&) {  // the port is closed
      }
      std::this_thread::sleep_for(milliseconds(20));
    }
  });
  const auto one = start_node(1, at);
  const int codes = zero->exit_code() + one->exit_code();
  done = true;
  again.join();
  CHECK(codes == 0);
  CHECK(without_warnings(zero->output()) == undisturbed_output());
  CHECK_THAT(zero->output(), Contains("warning: the store dropped a connection from 127.0.0.1: ") &&
                                 Contains(attack.logged));
  CHECK(count_of(zero->output(), "warning: ") <= 12);  // ten, and how many more
  for (const Socket& connection : connections) CHECK(closed_within(connection, milliseconds(1000)));
  for (const auto& program : {&zero, &one}) (*program)->check_nothing_left();
}

TEST_CASE("nodes with another secret, or none, are refused in words", "[attacks]") {
  const Endpoint at = free_endpoint();
  const auto zero = start_node(0, at);
  wait_for_target(at);
  setenv(kSecretVariable, "another secret of 16", 1);
  Program other(
      fmt::format("trains --ranks 2 --nnodes 2 --node-rank 1 --rdzv-endpoint {} --rdzv-id {}",
                  at.str(), kOurs.job));
  CHECK(other.exit_code() == 2);
  CHECK_THAT(other.output(), Contains("error: [rendezvous] node 1 was refused at " + at.str() +
                                      ": the secret or the job id is another there"));
  unsetenv(kSecretVariable);
  Program none("trains --nnodes 2 --node-rank 1 --rdzv-endpoint 192.0.2.1:29400");
  CHECK(none.exit_code() == 2);
  CHECK_THAT(none.output(), Contains("error: [launch] other hosts can reach 192.0.2.1:29400") &&
                                Contains("openssl rand -hex 32"));
  const auto one = start_node(1, at);
  CHECK(zero->exit_code() == 0);
  CHECK(one->exit_code() == 0);
}

}  // namespace tessera::distributed
