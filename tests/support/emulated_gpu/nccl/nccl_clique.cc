#include "tessera/tests/support/emulated_gpu/nccl/nccl_clique.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>

namespace tessera::emulated::nccl {
namespace {

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && std::strcmp(value, "1") == 0;
}

// What a unique id holds.
struct Id {
  char mark[16];
  std::int64_t process;
  std::uint64_t number;
};
constexpr char kMark[16] = "emulated NCCL";

struct Cliques {
  std::mutex mutex;
  std::uint64_t ids = 0;
  std::map<std::uint64_t, std::shared_ptr<Clique>> founded;  // by the id's number
};
Cliques& cliques() {
  static Cliques all;
  return all;
}

std::string host_name() {
  const char* id = std::getenv("NCCL_HOSTID");
  return id == nullptr ? "" : id;
}

}  // namespace

bool is_silent() { return is_set("TESSERA_EMULATED_NCCL_SILENT"); }

void Clique::post_collective(Posted& posted, std::uint64_t number) {
  Barrier& barrier = barriers_[number];
  if (barrier.by_rank.empty()) barrier.by_rank.resize(members.size());
  barrier.by_rank[posted.rank] = &posted;
  if (++barrier.arrived < size() || broken_) return;
  std::vector<const Operation*> operations;
  for (const Posted* one : barrier.by_rank) {
    operations.push_back(one->operation);
    const std::string why = disagreement(*operations[0], *one->operation);
    if (!why.empty()) return fail(ncclInvalidUsage, fmt::format("collective {}: {}", number, why));
  }
  complete(operations);
  for (Posted* one : barrier.by_rank) one->done = true;
  barriers_.erase(number);
  changed.notify_all();
}

void Clique::post_point_to_point(Posted& posted) {
  const bool sends = posted.operation->kind == Kind::kSend;
  const int other = posted.operation->peer;
  const auto pair = sends ? std::pair(posted.rank, other) : std::pair(other, posted.rank);
  auto& mine = sends ? sends_[pair] : recvs_[pair];
  mine.push_back(&posted);
  auto &from = sends_[pair], &to = recvs_[pair];
  if (from.empty() || to.empty() || broken_) return;
  Posted *sender = from.front(), *receiver = to.front();
  const std::string why = disagreement(*sender->operation, *receiver->operation);
  if (!why.empty()) {
    return fail(ncclInvalidUsage,
                fmt::format("rank {} to rank {}: {}", pair.first, pair.second, why));
  }
  from.pop_front(), to.pop_front();
  const std::size_t bytes = sender->operation->count * size_of(sender->operation->type);
  if (bytes != 0) std::memmove(receiver->operation->recv, sender->operation->send, bytes);
  sender->done = receiver->done = true;
  changed.notify_all();
}

void Clique::withdraw(const Posted& posted) {
  broken_ = true;
  for (auto& [number, barrier] : barriers_) {
    std::replace(barrier.by_rank.begin(), barrier.by_rank.end(), const_cast<Posted*>(&posted),
                 static_cast<Posted*>(nullptr));
  }
  for (auto* queues : {&sends_, &recvs_}) {
    for (auto& [pair, queue] : *queues) std::erase(queue, &posted);
  }
}

ncclResult_t Clique::join_result(int rank) {
  if (members[rank].error != ncclSuccess) return members[rank].error;
  for (const Member& one : members) {
    if (!one.joined) return is_left_alone(rank) ? ncclRemoteError : ncclInProgress;
  }
  if (!checked_) check_devices();
  return members[rank].error;
}

void Clique::check_devices() {
  checked_ = true;
  if (is_set("TESSERA_EMULATED_NCCL_SHARE")) return;
  std::string why;
  for (int a = 0; a < size(); ++a) {
    for (int b = 0; b < size(); ++b) {
      if (a == b || members[a].device != members[b].device || members[a].host != members[b].host) {
        continue;
      }
      members[a].error = ncclInvalidUsage;
      why = fmt::format("Duplicate GPU detected : rank {} and rank {} both on CUDA device {}", a, b,
                        members[a].device);
    }
  }
  if (!why.empty()) fail(ncclRemoteError, why);
}

void Clique::abort(int rank) {
  members[rank].aborted = true;
  broken_ = true;
  if (aborted_ < 0) aborted_ = rank;
  changed.notify_all();
}

bool Clique::is_left_alone(int rank) {
  if (aborted_ < 0 || is_silent() || members[rank].aborted) return false;
  if (members[rank].error == ncclSuccess) {
    members[rank].error = refuse("NCCL communicator", ncclRemoteError,
                                 fmt::format("rank {} waits, rank {} has aborted", rank, aborted_));
  }
  return true;
}

bool Clique::all_finalized() const {
  return std::all_of(members.begin(), members.end(), [](const Member& one) {
    return one.finalized || one.aborted || one.error != ncclSuccess;
  });
}

void Clique::fail(ncclResult_t error, const std::string& why) {
  broken_ = true;
  refuse("NCCL communicator", error, why);
  if (is_silent() && error == ncclInvalidUsage) return;
  for (Member& one : members) {
    if (one.error == ncclSuccess && !one.aborted && !one.finalized) one.error = error;
  }
  changed.notify_all();
}

Membership enter(const ncclUniqueId& id, int ranks, int rank, int device) {
  constexpr const char* kFunction = "ncclCommInitRank";
  Id inside;
  std::memcpy(&inside, &id, sizeof inside);
  if (std::memcmp(inside.mark, kMark, sizeof kMark) != 0) {
    return {nullptr, refuse(kFunction, ncclInvalidArgument, "no id of ncclGetUniqueId")};
  }
  if (inside.process != getpid()) {
    return {nullptr, refuse(kFunction, ncclSystemError,
                            "the id is another process's: ranks are threads of one")};
  }
  const std::lock_guard lock(cliques().mutex);
  auto& clique = cliques().founded[inside.number];
  if (clique == nullptr) clique = std::make_shared<Clique>(ranks);
  const std::lock_guard inner(clique->mutex);
  if (clique->size() != ranks) {
    return {nullptr, refuse(kFunction, ncclInvalidUsage,
                            fmt::format("{} ranks here, {} elsewhere", ranks, clique->size()))};
  }
  if (clique->members[rank].joined) {
    return {nullptr, refuse(kFunction, ncclInvalidUsage,
                            fmt::format("rank {} has joined with this id before", rank))};
  }
  clique->members[rank] = {.joined = true, .device = device, .host = host_name()};
  clique->changed.notify_all();
  return {clique};
}

}  // namespace tessera::emulated::nccl

extern "C" ncclResult_t ncclGetVersion(int* version) {
  using namespace tessera::emulated::nccl;  // NOLINT: this is the API itself
  if (version == nullptr) return refuse(__func__, ncclInvalidArgument, "no place given");
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

extern "C" ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  using namespace tessera::emulated::nccl;  // NOLINT: this is the API itself
  if (id == nullptr) return refuse(__func__, ncclInvalidArgument, "no place given");
  Id inside{};
  inside.process = getpid();
  std::memcpy(inside.mark, kMark, sizeof kMark);
  {
    const std::lock_guard lock(cliques().mutex);
    inside.number = ++cliques().ids;
  }
  *id = {};
  std::memcpy(id, &inside, sizeof inside);
  return ncclSuccess;
}
