#include "tessera/distributed/nccl/nccl_peers.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "tessera/tensor/error.h"

namespace tessera::distributed {
namespace {

constexpr const char* kFailed = "nccl failed";
constexpr const char* kSomebodyLeft = "nccl left";
// A watch looks every 20 ms, or every 500 ms while one collective takes long.
constexpr std::chrono::milliseconds kForAnswers{700};
constexpr std::chrono::milliseconds kBetweenAnswers{20};

std::string id_key(const NcclRankGroup& rank_group) { return "nccl id " + rank_group.key; }
std::string came_key(const NcclRankGroup& rank_group, std::size_t place) {
  return fmt::format("nccl came {} {}", rank_group.key, place);
}
// The value of a key is written once, so questions are numbered and each has its own replies.
std::string question_key(int question) { return fmt::format("nccl question {}", question); }
std::string answer_key(int question, int rank) {
  return fmt::format("nccl reply {} {}", question, rank);
}
std::string left_key(const std::string& rank_group, int rank) {
  return fmt::format("nccl left {} {}", rank_group, rank);
}

// A collective as text: the key has no spaces.
std::string question_text(const std::string& rank_group, std::uint64_t sequence) {
  return fmt::format("{} {}", rank_group, sequence);
}

std::map<std::string, std::uint64_t> read_issued(const std::string& text) {
  std::map<std::string, std::uint64_t> out;
  std::istringstream in(text);
  std::string rank_group;
  std::uint64_t sequence = 0;
  while (in >> rank_group >> sequence) out[rank_group] = sequence;
  return out;
}

// No news where the store is gone.
template <class Ask>
auto ask_quietly(Ask&& ask) noexcept -> decltype(ask()) {
  try {
    return ask();
  } catch (...) {
    return {};
  }
}

}  // namespace

NcclPeers::NcclPeers(std::shared_ptr<Store> store, int rank)
    : store_(std::move(store)), rank_(rank) {}

void NcclPeers::give_id(const NcclRankGroup& rank_group, const std::string& id) {
  store_->set(id_key(rank_group), id);
}

std::optional<std::string> NcclPeers::take_id(const NcclRankGroup& rank_group,
                                              std::chrono::milliseconds timeout) {
  if (!store_->wait({id_key(rank_group)}, timeout).empty()) return std::nullopt;
  return store_->get(id_key(rank_group));
}

void NcclPeers::come(const NcclRankGroup& rank_group) {
  store_->set(came_key(rank_group, static_cast<std::size_t>(rank_group.place)), "");
}

std::vector<int> NcclPeers::absent(const NcclRankGroup& rank_group) {
  std::vector<int> out;
  for (std::size_t place = 0; place < rank_group.ranks.size(); ++place) {
    if (!store_->get(came_key(rank_group, place))) out.push_back(rank_group.ranks[place]);
  }
  return out;
}

void NcclPeers::note_issued(const NcclRankGroup& rank_group, std::uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  issued_[rank_group.key] = sequence;
}

bool NcclPeers::has_issued(const std::string& key, std::uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  const auto found = issued_.find(key);
  return found != issued_.end() && found->second >= sequence;
}

void NcclPeers::tell_failure(const std::string& reason) noexcept {
  ask_quietly([&] { return store_->set(kFailed, reason); });
}

std::optional<std::string> NcclPeers::failure() noexcept {
  return ask_quietly([&] { return store_->get(kFailed); });
}

// Returns the number of an equal question, or the first unused number. Skips questions that this
// rank has replied to: other ranks have replied too, and may have issued more since.
int NcclPeers::ask(const std::string& question) {
  int number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = answered_;
  }
  while (!store_->set(question_key(number), question)) {
    if (store_->get(question_key(number)) == question) break;
    ++number;
  }
  return number;
}

std::vector<int> NcclPeers::not_arrived(const NcclRankGroup& rank_group,
                                        std::uint64_t sequence) noexcept {
  return ask_quietly([&] {
    const int question = ask(question_text(rank_group.key, sequence));
    std::vector<std::string> keys;
    for (const int rank : rank_group.ranks) keys.push_back(answer_key(question, rank));
    // Other ranks ask too, and meanwhile wait for this rank's replies.
    const auto deadline = std::chrono::steady_clock::now() + kForAnswers;
    do {
      answer();
    } while (!store_->wait(keys, kBetweenAnswers).empty() && !store_->get(kFailed) &&
             std::chrono::steady_clock::now() < deadline);
    std::vector<int> out;
    for (const int rank : rank_group.ranks) {
      if (store_->get(answer_key(question, rank)).value_or("") != "here") out.push_back(rank);
    }
    return out;
  });
}

void NcclPeers::answer() noexcept {
  ask_quietly([&] {
    int number = 0;
    {
      const std::lock_guard lock(mutex_);
      number = answered_;
    }
    for (; const auto question = store_->get(question_key(number)); ++number) {
      for (const auto& [key, sequence] : read_issued(*question))
        store_->set(answer_key(number, rank_), has_issued(key, sequence) ? "here" : "not yet");
    }
    const std::lock_guard lock(mutex_);
    answered_ = std::max(answered_, number);
    return true;
  });
}

void NcclPeers::leave(const NcclRankGroup& rank_group) noexcept {
  ask_quietly([&] {
    std::uint64_t last = 0;
    {
      const std::lock_guard lock(mutex_);
      last = issued_[rank_group.key];
    }
    store_->set(left_key(rank_group.key, rank_), question_text(rank_group.key, last));
    return store_->set(kSomebodyLeft, "");
  });
}

std::optional<int> NcclPeers::left_before(const NcclRankGroup& rank_group,
                                          std::uint64_t sequence) noexcept {
  return ask_quietly([&]() -> std::optional<int> {
    if (!store_->get(kSomebodyLeft)) return std::nullopt;
    for (const int rank : rank_group.ranks) {
      const auto text = store_->get(left_key(rank_group.key, rank));
      if (text && read_issued(*text)[rank_group.key] < sequence) return rank;
    }
    return std::nullopt;
  });
}

}  // namespace tessera::distributed
