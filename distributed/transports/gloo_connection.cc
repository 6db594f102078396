#include "tessera/distributed/transports/gloo_connection.h"

#include <fmt/format.h>
#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <condition_variable>
#include <list>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "tessera/distributed/transports/connect_error.h"
#include "tessera/distributed/transports/gloo_peer.h"
#include "tessera/distributed/transports/gloo_rendezvous.h"
#include "tessera/distributed/transports/shared_memory.h"
#include "tessera/tensor/check.h"

namespace tessera::distributed {
namespace {

using Clock = std::chrono::steady_clock;
using Buffer = gloo::transport::UnboundBuffer;

// Gloo's own timeouts close every connection of the rank, so they are never used: the watch
// interrupts waits instead.
constexpr std::chrono::milliseconds kNever = std::chrono::hours(24 * 365);
constexpr std::chrono::milliseconds kWatchTick{20};
constexpr std::chrono::milliseconds kInterruptTick{1};
constexpr std::chrono::milliseconds kFarewell{2000};
// Past the deadline: long enough that a message which did arrive is not taken for a missing one.
constexpr std::chrono::milliseconds kLastLook{5};

// Streams and groups run concurrently: only the tag distinguishes their messages. Its components
// keep ranks that disagree from matching; Gloo would end the process in that case.
std::uint64_t tag_of(std::uint64_t group, const Transfer& transfer) {
  std::uint64_t terms = (transfer.terms ^ group) * 0x9E3779B97F4A7C15ULL;
  terms ^= terms >> 32;
  return ((terms & 0x7FFFFFFF) << 32) | (transfer.number & 0xFFFFFFFF);
}

}  // namespace

class GlooConnection::Impl {
 public:
  explicit Impl(const Options& options);
  ~Impl();
  void exchange(const ResolvedCollective& call, const ExchangePlan& plan, std::uint64_t group);
  void abort(const std::string& reason) noexcept;

 private:
  using Lock = std::unique_lock<std::mutex>;
  // Waits under way, as the watch sees them; guarded by mutex_.
  struct Operation {
    Clock::time_point deadline;
    // Set: a last word to this peer, which an abort does not interrupt.
    const GlooPeer* farewell = nullptr;
    bool timed_out = false;
    Buffer* waiting = nullptr;
    Clock::time_point waiting_since{};
    bool receiving = false;
  };
  // Keeps an operation in the list while it lives.
  class Registration {
   public:
    Registration(Impl& impl, const Operation& operation);
    ~Registration();
    Operation& operator*() { return *operation_; }

   private:
    Impl& impl_;
    std::list<Operation>::iterator operation_;
  };
  struct Posted {
    int peer = 0;
    bool receiving = false;
    std::unique_ptr<Buffer> buffer;
  };

  void check_all_present();  // before the watch begins
  std::vector<Posted> post(const ResolvedCollective& call, const ExchangePlan& plan,
                           std::uint64_t group);
  std::vector<int> exchange_in_memory(const ResolvedCollective& call, const ExchangePlan& plan,
                                      std::uint64_t group, Operation& operation);
  void await_all(const ResolvedCollective& call, const std::vector<Posted>& all,
                 Operation& operation, std::vector<int> missing);
  bool wait(Operation& operation, Buffer& buffer, bool receiving);
  void await_farewell(const GlooPeer& peer, Clock::time_point deadline) noexcept;
  [[noreturn]] void throw_interrupted(const ResolvedCollective& call, const Operation& operation,
                                      std::vector<int> missing);
  [[noreturn]] void throw_connection_lost(const ResolvedCollective& call, int peer);

  void watch();
  void look_at(GlooPeer& peer);  // lock held, here and below
  bool interrupt_operations();
  bool is_over(const Operation& operation) const;
  std::optional<int> one_that_left(std::span<const int> ranks) const;
  void say(GlooWord word, const std::string& text) noexcept;
  void set_aborted(const std::string& reason);

  const Options options_;
  std::shared_ptr<gloo::Context> context_;
  std::unique_ptr<SharedMemory> memory_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<GlooPeer>> peers_;
  std::list<Operation> operations_;
  std::optional<std::string> abort_;
  std::string notice_;  // what the peers are still to be told
  bool said_ = false;
  bool stop_ = false;
  std::thread watcher_;
};

GlooConnection::Impl::Impl(const Options& options) : options_(options) {
  if (options_.size == 1) return;
  context_ = connect_with_all(options_);
  for (int rank = 0; rank < options_.size; ++rank) {
    if (rank == options_.rank) continue;
    peers_.push_back(std::make_unique<GlooPeer>(*context_, rank));
  }
  memory_ = std::make_unique<SharedMemory>(
      SharedMemory::Options{.group = options_.group,
                            .rank = options_.rank,
                            .size = options_.size,
                            .store = options_.store,
                            .node = options_.node,
                            .timeout = options_.timeout,
                            .check = [this] { check_all_present(); }});
  watcher_ = std::thread([this] { watch(); });
}

void GlooConnection::Impl::check_all_present() {
  for (const std::unique_ptr<GlooPeer>& peer : peers_) {
    const std::optional<std::string> news = peer->look();
    if (peer->state() == GlooPeer::State::kPresent) continue;
    throw_cannot_connect<CollectiveAborted>(
        options_.rank, options_.group,
        news.value_or(fmt::format("rank {} has left", peer->rank())));
  }
}

GlooConnection::Impl::~Impl() {
  if (options_.size == 1) return;
  {
    Lock lock(mutex_);
    if (abort_) {
      if (!notice_.empty()) say(GlooWord::kAborted, notice_);
    } else {
      say(GlooWord::kLeaving, "");
    }
  }
  const auto deadline = Clock::now() + kFarewell;  // of all together
  for (const std::unique_ptr<GlooPeer>& peer : peers_) await_farewell(*peer, deadline);
  {
    Lock lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  watcher_.join();  // Untimed: it looks at stop_ every tick
}

// What was said must have reached the peer's socket before ours closes.
void GlooConnection::Impl::await_farewell(const GlooPeer& peer,
                                          Clock::time_point deadline) noexcept {
  if (peer.said() == nullptr) return;
  try {
    Registration operation(*this, {.deadline = deadline, .farewell = &peer});
    wait(*operation, *peer.said(), false);
  } catch (const std::exception&) {  // the peer went first
  }
}

GlooConnection::Impl::Registration::Registration(Impl& impl, const Operation& operation)
    : impl_(impl) {
  Lock lock(impl_.mutex_);
  operation_ = impl_.operations_.insert(impl_.operations_.end(), operation);
}

GlooConnection::Impl::Registration::~Registration() {
  Lock lock(impl_.mutex_);
  impl_.operations_.erase(operation_);
}

void GlooConnection::Impl::exchange(const ResolvedCollective& call, const ExchangePlan& plan,
                                    std::uint64_t group) {
  run_copies(plan.before);
  Registration operation(*this, {.deadline = Clock::now() + options_.timeout});
  {
    Lock lock(mutex_);
    if (abort_) throw_aborted(call, "was aborted: " + *abort_);
  }
  const std::vector<Posted> posted = post(call, plan, group);
  await_all(call, posted, *operation, exchange_in_memory(call, plan, group, *operation));
  run_copies(plan.after);
  run_reductions(plan, call.dtype, call.reduce);
}

// Returns the ranks whose messages are missing when the exchange has ended for them.
std::vector<int> GlooConnection::Impl::exchange_in_memory(const ResolvedCollective& call,
                                                          const ExchangePlan& plan,
                                                          std::uint64_t group,
                                                          Operation& operation) {
  if (memory_ == nullptr) return {};
  std::optional<int> left;
  const auto is_over_now = [&](std::span<const int> missing) {
    Lock lock(mutex_);
    if (Clock::now() > operation.deadline) operation.timed_out = true;
    left = one_that_left(missing);
    return left.has_value() || is_over(operation);
  };
  // In these a peer that sends may still expect other messages than this rank sends it.
  const bool all_take_part =
      call.kind != CollectiveKind::kExchange && call.kind != CollectiveKind::kAllToAll;
  std::vector<int> missing = memory_->exchange(
      plan, group, all_take_part, {.deadline = operation.deadline, .is_over = is_over_now});
  if (left && !missing.empty()) throw_connection_lost(call, *left);
  return missing;
}

void GlooConnection::Impl::await_all(const ResolvedCollective& call, const std::vector<Posted>& all,
                                     Operation& operation, std::vector<int> missing) {
  for (const Posted& posted : all) {
    bool arrived = false;
    try {
      arrived = wait(operation, *posted.buffer, posted.receiving);
    } catch (const std::exception&) {
      throw_connection_lost(call, posted.peer);
    }
    const bool noted = std::find(missing.begin(), missing.end(), posted.peer) != missing.end();
    if (!arrived && !noted) missing.push_back(posted.peer);
  }
  if (!missing.empty()) throw_interrupted(call, operation, std::move(missing));
}

// Everything at once, so that no rank waits for its turn; receives first.
std::vector<GlooConnection::Impl::Posted> GlooConnection::Impl::post(const ResolvedCollective& call,
                                                                     const ExchangePlan& plan,
                                                                     std::uint64_t group) {
  std::vector<Posted> all;
  all.reserve(plan.receives.size() + plan.sends.size());
  const auto post_all = [&](const std::vector<Transfer>& transfers, bool receiving) {
    for (const Transfer& transfer : transfers) {
      if (memory_ != nullptr && memory_->reaches(transfer.peer)) continue;
      try {
        const std::uint64_t tag = tag_of(group, transfer);
        all.push_back({transfer.peer, receiving,
                       context_->createUnboundBuffer(transfer.data, transfer.bytes)});
        if (receiving) {
          all.back().buffer->recv(transfer.peer, tag);
        } else {
          all.back().buffer->send(transfer.peer, tag);
        }
      } catch (const std::exception&) {
        throw_connection_lost(call, transfer.peer);
      }
    }
  };
  post_all(plan.receives, true);
  post_all(plan.sends, false);
  return all;
}

// False when interrupted. After its deadline an operation goes on to look which of its messages did
// arrive.
bool GlooConnection::Impl::wait(Operation& operation, Buffer& buffer, bool receiving) {
  {
    Lock lock(mutex_);
    if (is_over(operation) && !operation.timed_out) return false;
    operation.waiting = &buffer;
    operation.waiting_since = Clock::now();
    operation.receiving = receiving;
  }
  struct Clear {
    Impl& impl;
    Operation& operation;
    ~Clear() {
      Lock lock(impl.mutex_);
      operation.waiting = nullptr;
    }
  } clear{*this, operation};
  return receiving ? buffer.waitRecv(kNever) : buffer.waitSend(kNever);
}

void GlooConnection::Impl::throw_interrupted(const ResolvedCollective& call,
                                             const Operation& operation, std::vector<int> missing) {
  Lock lock(mutex_);
  if (abort_) throw_aborted(call, "was aborted: " + *abort_);
  TESSERA_CHECK_AS(StateError, operation.timed_out, call.site.op,
                   "{} was interrupted for no reason", call.str());
  std::sort(missing.begin(), missing.end());
  const std::string what =
      fmt::format("timed out after {:g} s: {} did not arrive, or issued another collective instead",
                  std::chrono::duration<double>(options_.timeout).count(), ranks_text(missing));
  notice_ = fmt::format("{} {}", call.str(), what);
  set_aborted(fmt::format("rank {} failed: {}", options_.rank, notice_));
  throw_timeout(call, what);
}

void GlooConnection::Impl::throw_connection_lost(const ResolvedCollective& call, int peer) {
  Lock lock(mutex_);
  const auto found = std::find_if(peers_.begin(), peers_.end(),
                                  [peer](const auto& each) { return each->rank() == peer; });
  // Gloo tells the collective's buffers a moment before or after it tells the watch's.
  for (int i = 0; i < 100 && !abort_ && (*found)->state() == GlooPeer::State::kPresent; ++i) {
    look_at(**found);
    changed_.wait_for(lock, kInterruptTick);
  }
  if (!abort_ && (*found)->state() == GlooPeer::State::kLeft) {
    const std::string what = needs_rank_that_left(peer);
    notice_ = fmt::format("{} {}", call.str(), what);
    set_aborted(fmt::format("rank {} failed: {}", options_.rank, notice_));
    throw_collective_error(call, what);
  }
  if (!abort_) set_aborted(fmt::format("rank {} is gone (its connection closed)", peer));
  throw_aborted(call, "was aborted: " + *abort_);
}

void GlooConnection::Impl::abort(const std::string& reason) noexcept {
  Lock lock(mutex_);
  if (abort_) return;
  notice_ = reason.empty() ? "no reason given" : reason;
  set_aborted(fmt::format("rank {} failed: {}", options_.rank, notice_));
}

void GlooConnection::Impl::set_aborted(const std::string& reason) {
  if (!abort_) abort_ = reason;
  changed_.notify_all();
  if (memory_ != nullptr) memory_->wake();
}

void GlooConnection::Impl::watch() {
  Lock lock(mutex_);
  while (!stop_) {
    for (const std::unique_ptr<GlooPeer>& peer : peers_) look_at(*peer);
    if (!notice_.empty()) say(GlooWord::kAborted, notice_);
    const bool interrupting = interrupt_operations();
    changed_.wait_for(lock, interrupting ? kInterruptTick : kWatchTick);
  }
}

void GlooConnection::Impl::look_at(GlooPeer& peer) {
  const bool was_present = peer.state() == GlooPeer::State::kPresent;
  if (const std::optional<std::string> news = peer.look()) set_aborted(*news);
  const bool is_gone = was_present && peer.state() != GlooPeer::State::kPresent;
  if (is_gone && memory_ != nullptr) memory_->wake();
}

bool GlooConnection::Impl::interrupt_operations() {
  bool any = false;
  const Clock::time_point now = Clock::now();
  for (Operation& operation : operations_) {
    if (!is_over(operation) && now > operation.deadline) operation.timed_out = true;
    if (!is_over(operation) || operation.waiting == nullptr) continue;
    any = true;
    if (operation.timed_out && now - operation.waiting_since < kLastLook) continue;
    if (operation.receiving) {
      operation.waiting->abortWaitRecv();
    } else {
      operation.waiting->abortWaitSend();
    }
  }
  return any;
}

bool GlooConnection::Impl::is_over(const Operation& operation) const {
  if (operation.farewell != nullptr)
    return operation.timed_out || operation.farewell->state() != GlooPeer::State::kPresent;
  return operation.timed_out || abort_.has_value();
}

std::optional<int> GlooConnection::Impl::one_that_left(std::span<const int> ranks) const {
  for (const std::unique_ptr<GlooPeer>& peer : peers_) {
    const bool is_asked = std::find(ranks.begin(), ranks.end(), peer->rank()) != ranks.end();
    if (is_asked && peer->state() != GlooPeer::State::kPresent) return peer->rank();
  }
  return std::nullopt;
}

void GlooConnection::Impl::say(GlooWord word, const std::string& text) noexcept {
  if (std::exchange(said_, true)) return;
  for (const std::unique_ptr<GlooPeer>& peer : peers_) peer->say(*context_, word, text);
}

GlooConnection::GlooConnection(const Options& options) : impl_(std::make_unique<Impl>(options)) {}
GlooConnection::~GlooConnection() = default;
void GlooConnection::exchange(const ResolvedCollective& call, const ExchangePlan& plan,
                              std::uint64_t group) {
  impl_->exchange(call, plan, group);
}
void GlooConnection::abort(const std::string& reason) noexcept { impl_->abort(reason); }

}  // namespace tessera::distributed
