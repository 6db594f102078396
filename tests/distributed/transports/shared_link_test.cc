// Messages between two ranks through shared memory: all states of a channel, one thread at a time;
// two threads; two processes, of which one is killed.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <deque>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tessera/distributed/transports/shared_link.h"
#include "tessera/tensor/error.h"

namespace tessera::distributed {
namespace {

using Catch::Matchers::Contains;
using Bytes = std::vector<std::byte>;

constexpr std::size_t kSlotBytes = 4096;

// Two ranks, each with its segment and its end of the channels.
struct Pair {
  SharedSegment a_memory = SharedSegment::create(1, kSlotBytes);
  SharedSegment b_memory = SharedSegment::create(1, kSlotBytes);
  SharedLink a{{&b_memory, 0}, {&a_memory, 0}};
  SharedLink b{{&a_memory, 0}, {&b_memory, 0}};
};

Bytes some_bytes(std::size_t count, int seed) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i)
    bytes[i] = static_cast<std::byte>(static_cast<std::size_t>(seed) * 31 + i * 7 + i / 251);
  return bytes;
}

// A message with its memory, cut into parts at these places.
struct Letter {
  Letter(std::uint64_t number, Bytes content, const std::vector<std::size_t>& cuts = {})
      : bytes(std::move(content)) {
    message.key = {.number = number, .terms = bytes.size()};
    std::size_t begin = 0;
    for (std::size_t cut : cuts) {
      message.add(bytes.data() + begin, cut - begin);
      begin = cut;
    }
    message.add(bytes.data() + begin, bytes.size() - begin);
  }
  Bytes bytes;
  SharedMessage message;
};

// Both ends take turns until the letter is received and sent.
void deliver(SharedLink& from, SharedLink& to, Letter& sent, Letter& received) {
  for (int i = 0; i < 100000 && !(sent.message.done && received.message.done); ++i) {
    if (!sent.message.done) from.send(sent.message);
    if (!received.message.done) to.receive(received.message);
  }
  REQUIRE(sent.message.done);
  REQUIRE(received.message.done);
}

int open_files_of_tessera() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    const std::string target = std::filesystem::read_symlink(entry.path(), ignored);
    count += target.find("memfd:tessera-") != std::string::npos;
  }
  return count;
}

int maps_of_tessera(const std::string& process) {
  std::ifstream maps("/proc/" + process + "/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);)
    count += line.find("memfd:tessera-") != std::string::npos;
  return count;
}

}  // namespace

TEST_CASE("messages of any size and number of parts arrive", "[shared]") {
  Pair pair;
  std::uint64_t number = 0;
  for (int round = 0; round < 3; ++round) {  // all slots and entries are used several times
    for (std::size_t size : {0UL, 1UL, kSlotBytes - 1, kSlotBytes, kSlotBytes + 1, 16 * kSlotBytes,
                             17 * kSlotBytes, 70 * kSlotBytes + 3}) {
      const Bytes content = some_bytes(size, round);
      Letter sent(++number, content, {0, size / 3, size / 3, size / 2});
      Letter received(number, Bytes(size), {size / 5, size});
      deliver(pair.a, pair.b, sent, received);
      CHECK(received.bytes == content);
      Letter answer(number, content), replied(number, Bytes(size));
      deliver(pair.b, pair.a, answer, replied);
      CHECK(replied.bytes == content);
    }
  }
}

TEST_CASE("of a message without a receiver there is one chunk, and it is not done", "[shared]") {
  Pair pair;
  const std::size_t size = GENERATE(0UL, 100UL, 3 * kSlotBytes);
  const Bytes content = some_bytes(size, 5);
  Letter sent(1, content), received(1, Bytes(size)), other(2, Bytes(size));
  CHECK(pair.a.send(sent.message));
  CHECK_FALSE(pair.a.send(sent.message));
  CHECK_FALSE(sent.message.done);
  CHECK_FALSE(pair.b.receive(other.message));  // another number
  other.message.key = {.number = 1, .terms = size + 1};
  CHECK_FALSE(pair.b.receive(other.message));  // other terms
  CHECK_FALSE(pair.a.send(sent.message));
  deliver(pair.a, pair.b, sent, received);
  CHECK(received.bytes == content);
}

TEST_CASE("a message to a rank that is known to take part is done when it is sent", "[shared]") {
  Pair pair;
  const Bytes content = some_bytes(16 * kSlotBytes, 9);  // fills all slots
  Letter sent(1, content), received(1, Bytes(content.size()));
  sent.message.expected = true;
  for (int chunk = 0; chunk < 16; ++chunk) CHECK(pair.a.send(sent.message));
  CHECK(sent.message.done);
  Letter next(2, content), next_received(2, Bytes(content.size()));
  next.message.expected = true;
  CHECK_FALSE(pair.a.send(next.message));  // no slot
  while (!received.message.done) REQUIRE(pair.b.receive(received.message));
  CHECK(received.bytes == content);
  deliver(pair.a, pair.b, next, next_received);
  CHECK(next_received.bytes == content);
}

TEST_CASE("messages are received in any order, however many wait", "[shared]") {
  Pair pair;
  const int count = GENERATE(3, 8, 9, 16, 17, 200);  // chunks wait, then offers, then senders
  CAPTURE(count);
  const std::size_t size = 2 * kSlotBytes + 11;
  std::deque<Letter> sent, received;
  for (int i = 0; i < count; ++i) {
    sent.emplace_back(static_cast<std::uint64_t>(i), some_bytes(size, i));
    received.emplace_back(static_cast<std::uint64_t>(i), Bytes(size));
  }
  const auto send_all = [&] {
    for (Letter& letter : sent) {
      if (!letter.message.done) pair.a.send(letter.message);
    }
  };
  send_all();
  for (int i = count - 1; i >= 0; --i) {  // the last one first
    Letter& letter = received[static_cast<std::size_t>(i)];
    for (int tries = 0; tries < 1000 && !letter.message.done; ++tries) {
      pair.b.receive(letter.message);
      send_all();
    }
    REQUIRE(letter.message.done);
    CHECK(letter.bytes == sent[static_cast<std::size_t>(i)].bytes);
  }
  send_all();
  for (Letter& letter : sent) CHECK(letter.message.done);
}

TEST_CASE("an offer that was followed by the message is not replied", "[shared]") {
  Pair pair;
  std::deque<Letter> unclaimed;
  for (std::uint64_t i = 1; i <= 8; ++i) {
    unclaimed.emplace_back(i, some_bytes(3, 1));
    REQUIRE(pair.a.send(unclaimed.back().message));
  }
  Letter sent(9, some_bytes(10, 2)), received(9, Bytes(10)), again(9, Bytes(10));
  REQUIRE(pair.a.send(sent.message));  // the offer
  CHECK_FALSE(sent.message.begun);
  sent.message.expected = true;
  REQUIRE(pair.a.send(sent.message));
  CHECK(sent.message.done);
  REQUIRE(pair.b.receive(received.message));
  CHECK(received.message.done);
  CHECK_FALSE(pair.b.receive(again.message));
}

TEST_CASE("a sender that fails gives its place back", "[shared]") {
  Pair pair;
  std::deque<Letter> failed;
  for (std::uint64_t i = 1; i <= 9; ++i) {  // eight chunks and an offer
    failed.emplace_back(i, some_bytes(2 * kSlotBytes, 1));
    REQUIRE(pair.a.send(failed.back().message));
  }
  for (Letter& letter : failed) pair.a.forget(letter.message);
  for (std::uint64_t i = 1; i <= 9; ++i) {  // their chunks are taken, the offer is replied
    Letter received(i, Bytes(2 * kSlotBytes));
    CHECK(pair.b.receive(received.message));
    CHECK_FALSE(pair.b.receive(received.message));
  }
  for (Letter& letter : failed) CHECK_FALSE(pair.a.send(letter.message));  // it knows nothing of it
  Letter sent(10, some_bytes(40 * kSlotBytes, 1)), received(10, Bytes(40 * kSlotBytes));
  deliver(pair.a, pair.b, sent, received);
  CHECK(received.bytes == sent.bytes);
}

TEST_CASE("a chunk that does not fit is refused", "[shared]") {
  Pair pair;
  Letter sent(1, some_bytes(11, 1)), received(1, Bytes(10));
  received.message.key = sent.message.key;
  REQUIRE(pair.a.send(sent.message));
  CHECK_THROWS_AS(pair.b.receive(received.message), StateError);
  Letter once_more(1, some_bytes(11, 1)), again(1, Bytes(10));
  again.message.key = once_more.message.key;
  REQUIRE(pair.a.send(once_more.message));
  CHECK_THROWS_WITH(pair.b.receive(again.message),
                    Contains("a chunk of 11 bytes has arrived for a message that lacks 10"));
}

TEST_CASE("several threads of two ranks send both ways at once", "[shared]") {
  Pair pair;
  constexpr int kThreads = 3, kRounds = 40;
  std::vector<std::thread> threads;
  std::vector<int> wrong(2 * kThreads, 0);
  for (int which = 0; which < 2 * kThreads; ++which) {
    threads.emplace_back([&pair, &wrong, which] {
      const bool is_a = which % 2 == 0;
      SharedLink& link = is_a ? pair.a : pair.b;
      SharedBell& bell = (is_a ? pair.a_memory : pair.b_memory).bell();
      for (int round = 0; round < kRounds; ++round) {
        const int seed = which / 2 * 1000 + round;
        const std::size_t size = static_cast<std::size_t>(seed) * 997 % (9 * kSlotBytes);
        const auto number = static_cast<std::uint64_t>(seed);
        Letter sent(number, some_bytes(size, seed)), received(number, Bytes(size));
        while (!sent.message.done || !received.message.done) {
          const std::uint32_t seen = bell.count();
          const bool has_sent = !sent.message.done && link.send(sent.message);
          const bool has_received = !received.message.done && link.receive(received.message);
          if (has_sent || has_received)
            link.notify();
          else if (!sent.message.done || !received.message.done)
            bell.wait(seen, std::chrono::seconds(30));
        }
        wrong[static_cast<std::size_t>(which)] += received.bytes != sent.bytes;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(std::accumulate(wrong.begin(), wrong.end(), 0) == 0);
}

TEST_CASE("a bell wakes those who wait, and is not waited for once it has rung", "[shared]") {
  const SharedSegment memory = SharedSegment::create(1, kSlotBytes);
  SharedBell& bell = memory.bell();
  const std::uint32_t seen = bell.count();
  CHECK_FALSE(bell.wait(seen, std::chrono::milliseconds(3)));
  CHECK_FALSE(bell.wait(seen, std::chrono::nanoseconds(0)));
  bell.ring();
  CHECK(bell.wait(seen, std::chrono::seconds(30)));
  const std::uint32_t now = bell.count();
  std::atomic<int> woken = 0;
  std::vector<std::thread> sleepers;
  for (int i = 0; i < 3; ++i)
    sleepers.emplace_back([&] { woken += bell.wait(now, std::chrono::seconds(30)); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // most likely they sleep
  bell.ring();
  for (std::thread& sleeper : sleepers) sleeper.join();
  CHECK(woken == 3);
}

TEST_CASE("a segment can be opened until it is closed, and lasts until nobody has mapped it",
          "[shared]") {
  const int maps = maps_of_tessera("self");
  {
    SharedSegment memory = SharedSegment::create(3, kSlotBytes);
    const std::string address = memory.address();
    SharedSegment opened = SharedSegment::open(address);
    CHECK(opened.slot_bytes() == kSlotBytes);
    *memory.slot(2, 15) = std::byte{7};
    CHECK(*opened.slot(2, 15) == std::byte{7});
    opened.bell().ring();
    CHECK(memory.bell().count() == 1);
    CHECK(open_files_of_tessera() == 1);
    memory.close();
    CHECK(open_files_of_tessera() == 0);
    CHECK_THROWS_WITH(SharedSegment::open(address), Contains("cannot be opened: No such file"));
    CHECK(maps_of_tessera("self") == maps + 2);
  }
  CHECK(maps_of_tessera("self") == maps);
}

TEST_CASE("what is not a peer's segment is not opened", "[shared]") {
  const SharedSegment memory = SharedSegment::create(1, kSlotBytes);
  std::string other = memory.address();
  other.back() = other.back() == '0' ? '1' : '0';
  CHECK_THROWS_WITH(SharedSegment::open(other),
                    Contains("is not the shared memory of a peer but /memfd:tessera-"));
  CHECK_THROWS_WITH(SharedSegment::open("no address"), Contains("/proc/0/fd/0 cannot be opened"));
}

TEST_CASE("a limit of file sizes is named before the system ends the process", "[shared]") {
  rlimit before = {};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small = {.rlim_cur = 65536, .rlim_max = before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  std::string text;
  try {
    SharedSegment::create(1, kSlotBytes);
  } catch (const Error& error) {
    text = error.what();
  }
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  CHECK_THAT(text, Contains("[connect] shared memory needs ") &&
                       Contains("more than a file may have; raise the limit (ulimit -f)"));
}

TEST_CASE("a process that is killed in the middle of a message leaves the other end usable",
          "[shared]") {
#if defined(__SANITIZE_THREAD__)
  return;  // its threads do not survive a fork
#endif
  const SharedSegment mine = SharedSegment::create(1, kSlotBytes);
  const SharedSegment theirs = SharedSegment::create(1, kSlotBytes);
  SharedLink link({&theirs, 0}, {&mine, 0});
  const std::size_t size = 40 * kSlotBytes;
  const std::string addresses[] = {mine.address(), theirs.address()};
  const pid_t child = fork();
  if (child == 0) {
    const SharedSegment to = SharedSegment::open(addresses[0]);
    const SharedSegment from = SharedSegment::open(addresses[1]);
    SharedLink end({&to, 0}, {&from, 0});
    Letter sent(1, some_bytes(size, 3));
    sent.message.expected = true;
    for (int chunk = 0; chunk < 10; ++chunk) end.send(sent.message);
    end.notify();
    raise(SIGKILL);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  Letter received(1, Bytes(size));
  int chunks = 0;
  while (link.receive(received.message)) ++chunks;
  CHECK(chunks == 10);
  CHECK(received.message.left == 30 * kSlotBytes);
  Letter sent(2, some_bytes(size, 4));
  CHECK(link.send(sent.message));
  link.notify();
  CHECK_FALSE(mine.bell().wait(mine.bell().count(), std::chrono::milliseconds(5)));
}

}  // namespace tessera::distributed
