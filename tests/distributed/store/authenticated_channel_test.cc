// Authentication as a function of bytes: both ends in one process, and everything that may lie
// between them.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "tessera/distributed/store/authenticated_channel.h"
#include "tessera/distributed/store/authentication.h"
#include "tessera/distributed/store/drop_log.h"
#include "tessera/tensor/error.h"
#include "tessera/tests/support/temporary_folder.h"

namespace tessera::distributed {
namespace {

using Catch::Matchers::Contains;
using Side = AuthenticatedChannel::Side;

const Credentials kOurs{.secret = "a secret of the run", .job = "job 7"};

std::string nonce(char byte) { return std::string(kNonceBytes, byte); }

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    text += kDigits[static_cast<unsigned char>(byte) >> 4];
    text += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return text;
}

Key padded(const std::string& text) {
  Key key{};
  std::copy(text.begin(), text.end(), key.begin());
  return key;
}

// Both ends, and what goes from one to the other.
struct Ends {
  explicit Ends(const Credentials& client_has = kOurs, const Credentials& server_has = kOurs)
      : client(Side::kClient, client_has.key("test"), nonce('c')),
        server(Side::kServer, server_has.key("test"), nonce('s')) {}

  void exchange(std::size_t piece = 1000) {
    while (!client.output().empty() || !server.output().empty()) {
      pass(client, server, piece);
      pass(server, client, piece);
    }
  }
  static void pass(AuthenticatedChannel& from, AuthenticatedChannel& to, std::size_t piece) {
    const std::string bytes = std::exchange(from.output(), {});
    for (std::size_t at = 0; at < bytes.size(); at += piece) to.receive(bytes.substr(at, piece));
  }

  AuthenticatedChannel client, server;
};

// The bytes of a first message from the client to the server.
std::string sealed(Ends& ends, const std::string& payload) {
  ends.client.send(FrameType::kSet, payload);
  return std::exchange(ends.client.output(), {});
}

// A file that is removed at the end.
class SecretFile {
 public:
  explicit SecretFile(const std::string& text) {
    std::ofstream(path(), std::ios::binary) << text;
    std::filesystem::permissions(path(), std::filesystem::perms{0600});
  }
  std::string path() const { return folder_ / "secret"; }

 private:
  testing::TemporaryFolder folder_;
};

}  // namespace

TEST_CASE("hmac is HMAC-SHA256", "[authentication]") {
  // Cases 1 and 2 of RFC 4231; HMAC fills a short key with zeros itself.
  CHECK(hex(hmac(padded(std::string(20, '\x0b')), "Hi There")) ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(hex(hmac(padded("Jefe"), "what do ya want for nothing?")) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST_CASE("a key depends on secret, job and purpose", "[authentication]") {
  const auto key = [](const char* secret, const char* job, const char* purpose) {
    return Credentials{.secret = secret, .job = job}.key(purpose);
  };
  const Key ours = key("s", "j", "p");
  CHECK(ours == key("s", "j", "p"));
  CHECK(ours != key("t", "j", "p"));
  CHECK(ours != key("s", "k", "p"));
  CHECK(ours != key("s", "j", "q"));
  CHECK(key("s", "", "ab") != key("s", "b", "a"));
  CHECK(key("s", "1:b", "a") != key("s", "", "a1:b"));
}

TEST_CASE("bytes are compared, and secrets and nonces are not repeated", "[authentication]") {
  CHECK(same_bytes("", ""));
  CHECK(same_bytes("abc", "abc"));
  CHECK_FALSE(same_bytes("abc", "abd"));
  CHECK_FALSE(same_bytes("abc", "ab"));
  CHECK(random_bytes(0).empty());
  CHECK(random_bytes(32).size() == 32);
  CHECK(random_bytes(32) != random_bytes(32));
  CHECK(make_secret().size() == 64);
  CHECK(make_secret().find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK(make_secret() != make_secret());
}

TEST_CASE("a secret comes from a file or from the environment", "[authentication]") {
  unsetenv(kSecretVariable);
  CHECK(read_secret("").empty());
  setenv(kSecretVariable, "from the environment", 1);
  CHECK(read_secret("") == "from the environment");
  const SecretFile file("0123456789 abcdef \n\n");
  CHECK(read_secret(file.path()) == "0123456789 abcdef");
  setenv(kSecretVariable, "too short", 1);
  CHECK_THROWS_WITH(read_secret(""), Contains("[launch] the secret in TESSERA_SECRET has 9 bytes, "
                                              "which must be from 16 to 4096; make one with: "
                                              "openssl rand -hex 32"));
  unsetenv(kSecretVariable);
  CHECK_THROWS_WITH(read_secret("/no/such/file"),
                    Contains("--rdzv-secret-file /no/such/file: No such file or directory"));
  const SecretFile empty(" \n"), binary(std::string(20, '\0')), large(std::string(5000, 'x'));
  CHECK_THROWS_WITH(read_secret(empty.path()), Contains("has 0 bytes"));
  CHECK_THROWS_WITH(read_secret(binary.path()), Contains("has a zero byte"));
  CHECK_THROWS_WITH(read_secret(large.path()), Contains("has 4098 bytes"));
  CHECK_THROWS_WITH(read_secret("/"), Contains("--rdzv-secret-file /: "));
  std::filesystem::permissions(file.path(), std::filesystem::perms{0640});
  CHECK(read_secret(file.path()) == "0123456789 abcdef");
  std::filesystem::permissions(file.path(), std::filesystem::perms{0644});
  CHECK_THROWS_WITH(read_secret(file.path()),
                    Contains("every user of this host can read it; chmod 600 " + file.path()));
}

TEST_CASE("an address that other hosts reach needs a secret", "[authentication]") {
  CHECK_NOTHROW(check_has_secret({.host = "127.0.0.1", .port = 1}, {}));
  CHECK_NOTHROW(check_has_secret({.host = "192.0.2.7", .port = 1}, kOurs));
  CHECK_THROWS_WITH(check_has_secret({.host = "192.0.2.7", .port = 1}, {.job = "j"}),
                    Contains("[launch] other hosts can reach 192.0.2.7:1") &&
                        Contains("make one with: openssl rand -hex 32") &&
                        Contains("TESSERA_SECRET") && Contains("--rdzv-secret-file"));
}

TEST_CASE("both ends open, and messages pass in both directions", "[channel]") {
  const std::size_t piece = GENERATE(1, 7, 1000);
  Ends ends;
  CHECK_FALSE(ends.client.is_open());
  ends.exchange(piece);
  REQUIRE(ends.client.is_open());
  REQUIRE(ends.server.is_open());
  CHECK_FALSE(ends.server.next());
  const std::string large(100001, 'x');
  for (int round = 0; round < 3; ++round) {
    ends.client.send(FrameType::kSet, large);
    ends.client.send(FrameType::kGet, "");
    ends.exchange(piece);
    const std::optional<Frame> first = ends.server.next(), second = ends.server.next();
    REQUIRE(first);
    REQUIRE(second);
    CHECK(first->type == FrameType::kSet);
    CHECK(first->payload == large);
    CHECK(second->type == FrameType::kGet);
    CHECK(second->payload.empty());
    CHECK_FALSE(ends.server.next());
    ends.server.send(FrameType::kOk, "yes");
    ends.exchange(piece);
    CHECK(ends.client.next()->payload == "yes");
  }
  CHECK_THROWS_WITH(ends.client.send(FrameType::kSet, std::string(kMaxPayload + 1, 'x')),
                    Contains("is too large for the store, which takes 1048576"));
}

TEST_CASE("no more is wanted than belongs to the channel", "[channel]") {
  Ends ends;
  const auto deliver = [](AuthenticatedChannel& from, AuthenticatedChannel& to,
                          const std::string& more) {
    std::string bytes = std::exchange(from.output(), {}) + more;
    while (bytes.size() > more.size()) {
      const std::size_t count = to.wanted();
      to.receive(bytes.substr(0, count));
      bytes.erase(0, count);
    }
    CHECK(bytes == more);
  };
  deliver(ends.client, ends.server, "");
  deliver(ends.server, ends.client, "");
  deliver(ends.client, ends.server, "");
  ends.server.send(FrameType::kOk, "welcome");
  deliver(ends.server, ends.client, "what another protocol sends then");
  CHECK(ends.client.next()->payload == "welcome");
}

TEST_CASE("another secret or job id is rejected, and the client is told", "[channel]") {
  const Credentials theirs = GENERATE(Credentials{.secret = "another secret", .job = "job 7"},
                                      Credentials{.secret = "a secret of the run", .job = "job 8"});
  Ends ends(theirs, kOurs);
  ends.exchange();
  CHECK_FALSE(ends.server.is_open());
  CHECK(ends.server.problem() == "its secret or its job id is another");
  CHECK_FALSE(ends.client.is_open());
  CHECK(ends.client.is_rejected());
  CHECK(ends.client.problem() == "the secret or the job id is another there");
  CHECK_FALSE(ends.server.next());
}

TEST_CASE("a server that does not know the secret is found out", "[channel]") {
  Ends ends;
  ends.server.receive(std::exchange(ends.client.output(), {}));
  ends.client.receive(std::exchange(ends.server.output(), {}));
  ends.client.output().clear();
  const std::string accept("Ts\2\4\x20\0\0\0", 8);
  SECTION("made up") { ends.client.receive(accept + std::string(kMacBytes, 'x')); }
  SECTION("the client's own proof") {
    Ends again;
    again.server.receive(std::exchange(again.client.output(), {}));
    again.client.receive(std::exchange(again.server.output(), {}));
    ends.client.receive(accept + again.client.output().substr(8));
  }
  CHECK_FALSE(ends.client.is_open());
  CHECK(ends.client.problem() == "it has not the secret of this job");
  CHECK_FALSE(ends.client.is_rejected());
}

TEST_CASE("what was heard in one connection is worth nothing in another", "[channel]") {
  Ends first;
  std::string from_client = first.client.output();
  first.server.receive(std::exchange(first.client.output(), {}));
  first.client.receive(std::exchange(first.server.output(), {}));
  from_client += first.client.output();
  AuthenticatedChannel other(Side::kServer, kOurs.key("test"), nonce('t'));
  other.receive(from_client);
  CHECK(other.problem() == "its secret or its job id is another");
}

TEST_CASE("a message that is changed, repeated, left out or reflected is found out", "[channel]") {
  const std::string broken = "a message was changed, repeated or left out on the way";
  Ends ends;
  ends.exchange();
  const std::string first = sealed(ends, "one"), second = sealed(ends, "two");
  SECTION("changed") {
    for (std::size_t at = 0; at < first.size(); ++at) {
      Ends fresh;
      fresh.exchange();
      std::string bytes = sealed(fresh, "one");
      REQUIRE(bytes == first);
      bytes[at] = static_cast<char>(bytes[at] ^ 1);
      fresh.server.receive(bytes + std::string(70000, 'x'));
      CHECK_FALSE(fresh.server.next());
      CHECK_FALSE(fresh.server.problem().empty());
    }
  }
  SECTION("repeated") {
    ends.server.receive(first + first);
    CHECK(ends.server.next()->payload == "one");
    CHECK_FALSE(ends.server.next());
    CHECK(ends.server.problem() == broken);
  }
  SECTION("left out") {
    ends.server.receive(second);
    CHECK_FALSE(ends.server.next());
    CHECK(ends.server.problem() == broken);
  }
  SECTION("reflected") {
    ends.client.receive(first);
    CHECK_FALSE(ends.client.next());
    CHECK(ends.client.problem() == broken);
  }
}

TEST_CASE("what is no handshake is refused at its first bytes", "[channel]") {
  const auto problem = [](const std::string& bytes) {
    AuthenticatedChannel server(Side::kServer, kOurs.key("test"), nonce('s'));
    server.receive(bytes);
    server.receive("and more");
    CHECK_FALSE(server.is_open());
    return server.problem();
  };
  CHECK(problem("G") == "it speaks another protocol");
  CHECK(problem("TS") == "it speaks another protocol");
  CHECK(problem(std::string("Ts\1\1\x20\0\0\0", 8)) ==
        "it speaks version 1 of the protocol, this is version 2");
  CHECK(problem(std::string("Ts\2\1\x21\0\0\0", 8)) == "it announces 33 bytes in a message of 32");
  CHECK(problem("Ts\2\1\xFF\xFF\xFF\xFF") == "it announces 4294967295 bytes in a message of 32");
  CHECK(problem(std::string("Ts\2\x11\4\0\0\0", 8)) ==
        "it sends a message of type 17 before it has proved that it knows the secret");
  CHECK(problem(std::string("Ts\2\3\x20\0\0\0", 8) + nonce('x')) ==
        "a message of type 3 comes out of turn");
}

TEST_CASE("what is no message after the handshake is refused", "[channel]") {
  const auto problem = [](const std::string& bytes) {
    Ends ends;
    ends.exchange();
    ends.server.receive(bytes);
    CHECK_FALSE(ends.server.next());
    return ends.server.problem();
  };
  CHECK(problem(std::string("Ts\2\x11\1\0\x10\0", 8)) ==
        "it announces a message of 1048577 bytes, at most 1048576 are allowed");
  CHECK(problem(std::string("Ts\2\1\x20\0\0\0", 8)) == "a message of type 1 is none");
  CHECK(problem(std::string("Ts\2\x19\1\0\0\0", 8)) == "a message of type 25 is none");
  CHECK(problem(std::string("Ts\2\x11\1\0\0\0", 8)).empty());  // the rest is still to come
}

TEST_CASE("little is kept of a peer that has proved nothing", "[channel]") {
  AuthenticatedChannel server(Side::kServer, kOurs.key("test"), nonce('s'));
  server.receive(std::string("Ts\2\1\x20\0\0\0", 8) + nonce('c') +
                 std::string("Ts\2\3\x20\0\0\0", 8));
  CHECK(server.problem().empty());
  AuthenticatedChannel client(Side::kClient, kOurs.key("test"), nonce('c'));
  client.receive(std::string(kMaxUnauthenticated + 1, 'T'));
  CHECK_FALSE(client.problem().empty());
}

TEST_CASE("dropped connections are logged, but no flood of them", "[log]") {
  std::vector<std::string> lines;
  const DropLog::Clock::time_point start{std::chrono::hours(1)};
  {
    DropLog log("the store", [&lines](const std::string& line) { lines.push_back(line); });
    for (int i = 0; i < DropLog::kLines + 5; ++i) log.note("192.0.2.7", "no reason", start);
    CHECK(lines.size() == DropLog::kLines);
    CHECK(lines[0] == "the store dropped a connection from 192.0.2.7: no reason");
    log.note("192.0.2.8", "again", start + DropLog::kPeriod);
    CHECK(lines.size() == DropLog::kLines + 2);
    CHECK(lines[DropLog::kLines] == "the store dropped 5 more connections");
    CHECK(lines.back() == "the store dropped a connection from 192.0.2.8: again");
    for (int i = 0; i < DropLog::kLines; ++i) log.note("a", "b", start + DropLog::kPeriod);
  }
  CHECK(lines.back() == "the store dropped 1 more connections");
  DropLog("nobody", {}).note("a", "b", start);
}

}  // namespace tessera::distributed
