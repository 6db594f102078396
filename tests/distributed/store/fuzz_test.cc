// Bytes that a stranger or a member of a run may send, made at random: a valid conversation whose
// frames are changed, repeated, moved, cut or left out, in pieces of any size. The channel either
// refuses, or its frames are those that the peer has sent, in their order; it keeps no more than it
// may; and parts that are read from a payload are written as the same bytes.
//
// Runs for TESSERA_FUZZ_SECONDS, by default one second; the test target says 5. Random numbers
// begin with TESSERA_FUZZ_SEED, by default 1. A failure prints it:
//
//     tools/bazel run --config=asan //tests/distributed/store:fuzz_test
//     TESSERA_FUZZ_SECONDS=600 bazel-bin/tests/distributed/store/fuzz_test

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tessera/distributed/store/authenticated_channel.h"
#include "tessera/distributed/store/store_message.h"

namespace tessera::distributed {
namespace {

using Random = std::mt19937_64;
using Side = AuthenticatedChannel::Side;

constexpr std::size_t kHeader = 8;

std::size_t below(Random& random, std::size_t end) { return random() % end; }
bool one_in(Random& random, std::size_t count) { return below(random, count) == 0; }

std::string noise(Random& random, std::size_t most) {
  std::string bytes(below(random, most + 1), '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

const Key& key() {
  static const Key key = Credentials{.secret = "a secret of the run"}.key("fuzz");
  return key;
}

AuthenticatedChannel channel_of(Side side) {
  return {side, key(), std::string(kNonceBytes, side == Side::kClient ? 'c' : 's')};
}

std::string made_payload(Random& random) {
  std::vector<std::string> parts;
  for (std::size_t count = below(random, 4); count > 0; --count) parts.push_back(noise(random, 40));
  return one_in(random, 4) ? noise(random, 60) : encode_parts(parts);
}

// ---- changes of a conversation: frames as bytes, some of them from a handshake

void set_number(Random& random, std::string& bytes, std::size_t at, std::size_t count) {
  static constexpr std::uint64_t kOdd[] = {
      0, 1, 7, 31, 32, 33, 4096, 1 << 20, 1048577, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFF8};
  const std::uint64_t number = kOdd[below(random, std::size(kOdd))];
  for (std::size_t i = 0; i < count && at + i < bytes.size(); ++i)
    bytes[at + i] = static_cast<char>(number >> (8 * i));
}

void change(Random& random, std::vector<std::string>& frames) {
  if (frames.empty()) return frames.push_back(noise(random, 100));
  std::string& frame = frames[below(random, frames.size())];
  const std::string copy = frame;
  const auto place = [&] {
    return frames.begin() + static_cast<std::ptrdiff_t>(below(random, frames.size()));
  };
  switch (below(random, 10)) {
    case 0:
      if (!frame.empty()) frame[below(random, frame.size())] = static_cast<char>(random());
      return;
    case 1:
      if (!frame.empty())
        frame[below(random, frame.size())] ^= static_cast<char>(1 << below(random, 8));
      return;
    case 2:
      return set_number(random, frame, 4, 4);
    case 3:
      if (frame.size() > 3) frame[3] = static_cast<char>(below(random, 30));
      return;
    case 4:
      return set_number(random, frame, kHeader, 4);
    case 5:
      frame.resize(below(random, frame.size() + 1));
      return;
    case 6:
      frame += noise(random, 50);
      return;
    case 7:
      frames.erase(place());
      return;
    case 8:
      frames.insert(place(), copy);
      return;
    default:
      std::swap(frame, *place());
  }
}

// Passes the bytes on in pieces, and returns what the channel reads. It may keep one frame that is
// incomplete, and before it is open much less.
std::vector<Frame> read_in_pieces(Random& random, AuthenticatedChannel& channel,
                                  std::string bytes) {
  std::vector<Frame> frames;
  while (!bytes.empty()) {
    std::size_t piece = 1 + below(random, one_in(random, 3) ? 3 : 300);
    if (one_in(random, 4)) piece = std::min(channel.wanted(), std::size_t{1000});
    REQUIRE(channel.wanted() >= 1);
    REQUIRE(channel.wanted() <= kHeader + kMaxPayload + kMacBytes);
    if (!channel.is_open()) REQUIRE(channel.wanted() <= kHeader + kMacBytes);
    channel.receive(std::string_view(bytes).substr(0, piece));
    bytes.erase(0, piece);
    while (std::optional<Frame> frame = channel.next()) frames.push_back(std::move(*frame));
    if (!channel.problem().empty()) {
      REQUIRE_FALSE(channel.is_open());
      REQUIRE_FALSE(channel.next());
    }
  }
  return frames;
}

void check_parts(const std::string& payload) {
  const auto parts = decode_parts(payload);
  if (parts) REQUIRE(encode_parts(*parts) == payload);
}

// ---- the runs

double seconds_to_run() {
  const char* text = std::getenv("TESSERA_FUZZ_SECONDS");
  return text == nullptr ? 1 : std::atof(text);
}

std::uint64_t first_seed() {
  const char* text = std::getenv("TESSERA_FUZZ_SEED");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

struct Counts {
  std::uint64_t inputs = 0;
  std::uint64_t opened = 0;
  std::uint64_t whole = 0;  // all frames were read and nothing else
};

// What `writer` sends in a conversation with a peer like it, message by message.
std::vector<std::string> conversation(Side writer_side, const std::vector<std::string>& payloads) {
  const bool client = writer_side == Side::kClient;
  AuthenticatedChannel writer = channel_of(writer_side);
  AuthenticatedChannel peer = channel_of(client ? Side::kServer : Side::kClient);
  std::vector<std::string> sent;
  while (!writer.is_open() || !peer.is_open()) {
    if (!writer.output().empty()) {
      sent.push_back(std::exchange(writer.output(), {}));
      peer.receive(sent.back());
    }
    writer.receive(std::exchange(peer.output(), {}));
  }
  if (!writer.output().empty()) sent.push_back(std::exchange(writer.output(), {}));
  for (const std::string& payload : payloads) {
    writer.send(FrameType::kSet, payload);
    sent.push_back(std::exchange(writer.output(), {}));
  }
  return sent;
}

// Of one that even knows the secret. Channels depend on nothing but their bytes and nonces, so a
// fresh one reads what was said to another.
void attempt(Random& random, Counts& counts) {
  const bool server_reads = one_in(random, 2);
  AuthenticatedChannel reader = channel_of(server_reads ? Side::kServer : Side::kClient);
  std::vector<std::string> payloads(1 + below(random, 4));
  for (std::string& payload : payloads) payload = made_payload(random);
  std::vector<std::string> sent =
      conversation(server_reads ? Side::kClient : Side::kServer, payloads);
  if (one_in(random, 2)) {  // the handshake passes unchanged
    const std::size_t handshake = sent.size() - payloads.size();
    for (std::size_t i = 0; i < handshake; ++i) reader.receive(sent[i]);
    REQUIRE(reader.is_open());
    sent.erase(sent.begin(), sent.begin() + static_cast<std::ptrdiff_t>(handshake));
  }
  for (std::size_t changes = below(random, 4); changes > 0; --changes) change(random, sent);
  std::string bytes;
  for (const std::string& frame : sent) bytes += frame;
  const std::vector<Frame> frames = read_in_pieces(random, reader, bytes);
  REQUIRE(frames.size() <= payloads.size());
  for (std::size_t i = 0; i < frames.size(); ++i) {
    REQUIRE(frames[i].type == FrameType::kSet);
    REQUIRE(frames[i].payload == payloads[i]);
    check_parts(frames[i].payload);
  }
  check_parts(noise(random, 30));
  ++counts.inputs;
  if (reader.is_open()) ++counts.opened;
  if (frames.size() == payloads.size() && reader.problem().empty()) ++counts.whole;
}

}  // namespace

TEST_CASE("bytes made at random are refused, or are the peer's") {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds_to_run());
  Counts counts;
  for (std::uint64_t seed = first_seed(); counts.inputs < 2000 || Clock::now() < end; ++seed) {
    INFO("TESSERA_FUZZ_SEED=" << seed);
    Random random(seed);
    attempt(random, counts);
  }
  fmt::print("{} inputs, {} channels still open after them, {} of them whole\n", counts.inputs,
             counts.opened, counts.whole);
  CHECK(counts.whole > 0);
  CHECK(counts.opened < counts.inputs * 3 / 4);
}

}  // namespace tessera::distributed
