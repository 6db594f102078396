#include "tessera/distributed/transports/exchange_plan.h"

#include <cstring>
#include <span>

#include "tessera/distributed/transports/reduce_in_order.h"

namespace tessera::distributed {
namespace {

struct Piece {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

constexpr std::size_t kStagingAlignment = 64;

// Builds a plan. It runs twice: with null staging to learn how much is needed, then with the
// memory.
class Planner {
 public:
  Planner(const ResolvedCollective& call, int size, std::byte* staging)
      : call_(call), size_(size), rank_(call.site.rank), staging_(staging) {
    for (int peer = 0; peer < size; ++peer) {
      if (peer != rank_) peers_.push_back(peer);
    }
  }

  ExchangePlan make() {
    switch (call_.kind) {
      case CollectiveKind::kAllGather:
        plan_all_gather();
        break;
      case CollectiveKind::kReduceScatter:
        plan_reduce_scatter();
        break;
      case CollectiveKind::kAllReduce:
        plan_all_reduce();
        break;
      case CollectiveKind::kAllToAll:
        plan_all_to_all();
        break;
      case CollectiveKind::kBroadcast:
        plan_broadcast();
        break;
      case CollectiveKind::kReduce:
        plan_reduce();
        break;
      case CollectiveKind::kGather:
        plan_gather();
        break;
      case CollectiveKind::kScatter:
        plan_scatter();
        break;
      case CollectiveKind::kExchange:
        plan_messages();
        return std::move(plan_);
      case CollectiveKind::kBarrier:
        send(peers_, {});
        for (int peer : peers_) receive(peer, {});
        break;
    }
    number_transfers();
    return std::move(plan_);
  }
  std::size_t staged() const { return staged_; }

 private:
  std::size_t bytes(std::int64_t count) const {
    return static_cast<std::size_t>(count) * call_.element_size();
  }

  // Inputs are only ever sent from; Transfer has one pointer type for both directions.
  static std::byte* sendable(const std::byte* data) { return const_cast<std::byte*>(data); }

  std::byte* stage(std::size_t count) {
    const std::size_t at = staged_;
    staged_ += (count + kStagingAlignment - 1) / kStagingAlignment * kStagingAlignment;
    return staging_ == nullptr ? nullptr : staging_ + at;
  }
  static std::byte* plus(std::byte* data, std::size_t offset) {
    return data == nullptr ? nullptr : data + offset;
  }

  static bool is_small(const Piece& piece) { return piece.bytes < kPackedPartBytes; }
  // Bytes of the pieces that are packed into one message; 0 if packing would not pay.
  static std::size_t packed_bytes(const std::vector<Piece>& pieces) {
    std::size_t count = 0, total = 0;
    for (const Piece& piece : pieces) {
      if (piece.bytes == 0 || !is_small(piece)) continue;
      ++count;
      total += piece.bytes;
    }
    return count > 1 ? total : 0;
  }

  // The same pieces to every one of `peers`.
  void send(std::span<const int> peers, const std::vector<Piece>& pieces) {
    const std::size_t packed = packed_bytes(pieces);
    std::byte* pack = packed > 0 ? stage(packed) : nullptr;
    std::size_t at = 0;
    std::vector<Piece> messages;
    for (const Piece& piece : pieces) {
      if (piece.bytes == 0) continue;
      if (packed == 0 || !is_small(piece)) {
        messages.push_back(piece);
        continue;
      }
      plan_.before.push_back({plus(pack, at), piece.data, piece.bytes});
      at += piece.bytes;
    }
    if (packed > 0) messages.push_back({pack, packed});
    if (messages.empty()) messages.push_back({});  // an empty message: the ranks still meet
    for (int peer : peers) {
      for (const Piece& message : messages)
        plan_.sends.push_back({peer, message.data, message.bytes, 0, row_terms_to(peer)});
    }
  }

  void receive(int peer, const std::vector<Piece>& pieces) {
    const std::size_t packed = packed_bytes(pieces);
    std::byte* pack = packed > 0 ? stage(packed) : nullptr;
    std::size_t at = 0, messages = 0;
    for (const Piece& piece : pieces) {
      if (piece.bytes == 0) continue;
      if (packed == 0 || !is_small(piece)) {
        plan_.receives.push_back({peer, piece.data, piece.bytes, 0, row_terms_from(peer)});
        ++messages;
        continue;
      }
      plan_.after.push_back({piece.data, plus(pack, at), piece.bytes});
      at += piece.bytes;
    }
    if (packed > 0 || messages == 0)
      plan_.receives.push_back({peer, pack, packed, 0, row_terms_from(peer)});
  }

  // Receives pieces of these sizes into staging; small ones lie there in the order of the message.
  // Returns the place of each piece.
  std::vector<const void*> receive_staged(int peer, const std::vector<Piece>& sizes) {
    const std::size_t packed = packed_bytes(sizes);
    std::byte* pack = packed > 0 ? stage(packed) : nullptr;
    std::size_t at = 0, messages = 0;
    std::vector<const void*> places;
    for (const Piece& piece : sizes) {
      if (piece.bytes > 0 && packed > 0 && is_small(piece)) {
        places.push_back(plus(pack, at));
        at += piece.bytes;
        continue;
      }
      std::byte* place = stage(piece.bytes);
      places.push_back(place);
      if (piece.bytes == 0) continue;
      plan_.receives.push_back({peer, place, piece.bytes, 0, 0});
      ++messages;
    }
    if (packed > 0 || messages == 0) plan_.receives.push_back({peer, pack, packed, 0, 0});
    return places;
  }

  void plan_all_gather() {
    send(peers_, whole_members());
    gather_parts();
  }

  void plan_gather() {
    if (rank_ != call_.root) return send(std::span(&call_.root, 1), whole_members());
    gather_parts();
  }

  void gather_parts() {
    for (const ResolvedMember& member : call_.members) {
      const Piece place = part(member.output, rank_, member.count_in);
      plan_.before.push_back({place.data, member.input, place.bytes});
    }
    for (int peer : peers_) {
      std::vector<Piece> theirs;
      for (const ResolvedMember& member : call_.members)
        theirs.push_back(part(member.output, peer, member.count_in));
      receive(peer, theirs);
    }
  }

  // Part `index` of a member that is divided into parts of `count` elements.
  Piece part(std::byte* data, int index, std::int64_t count) const {
    return {plus(data, static_cast<std::size_t>(index) * bytes(count)), bytes(count)};
  }

  void plan_reduce_scatter() {
    std::vector<std::vector<const void*>> places(static_cast<std::size_t>(size_));
    for (int peer = 0; peer < size_; ++peer) {
      std::vector<Piece> pieces;
      for (const ResolvedMember& member : call_.members)
        pieces.push_back(part(sendable(member.input), peer, member.count_out));
      std::vector<const void*>& place = places[static_cast<std::size_t>(peer)];
      if (peer == rank_) {
        for (const Piece& piece : pieces) place.push_back(piece.data);
      } else {
        send(std::span(&peer, 1), pieces);
        place = receive_staged(peer, pieces);
      }
    }
    plan_reductions(places);
  }

  void plan_all_reduce() {
    const std::vector<Piece> mine = whole_members();
    send(peers_, mine);
    plan_reductions(collect_from_all(mine));
  }

  void plan_reduce() {
    const std::vector<Piece> mine = whole_members();
    if (rank_ != call_.root) return send(std::span(&call_.root, 1), mine);
    plan_reductions(collect_from_all(mine));
  }

  std::vector<Piece> whole_members() const {
    std::vector<Piece> mine;
    for (const ResolvedMember& member : call_.members)
      mine.push_back({sendable(member.input), bytes(member.count_in)});
    return mine;
  }

  // Where each rank's members lie, the others' in staging: places[rank][member].
  std::vector<std::vector<const void*>> collect_from_all(const std::vector<Piece>& mine) {
    std::vector<std::vector<const void*>> places(static_cast<std::size_t>(size_));
    for (int peer = 0; peer < size_; ++peer) {
      std::vector<const void*>& place = places[static_cast<std::size_t>(peer)];
      if (peer == rank_) {
        for (const Piece& piece : mine) place.push_back(piece.data);
      } else {
        place = receive_staged(peer, mine);
      }
    }
    return places;
  }

  // places[rank][member]
  void plan_reductions(const std::vector<std::vector<const void*>>& places) {
    for (std::size_t i = 0; i < call_.members.size(); ++i) {
      OrderedReduction reduction{.out = call_.members[i].output,
                                 .count = call_.members[i].count_out};
      for (const std::vector<const void*>& of_rank : places)
        reduction.sources.push_back(of_rank[i]);
      plan_.reductions.push_back(std::move(reduction));
    }
  }

  // Terms of a transfer, beside those of the call: the rows that go this way in all messages
  // together.
  std::uint64_t row_terms_to(int peer) const { return mixed(rows_to(peer)); }
  std::uint64_t row_terms_from(int peer) const { return mixed(rows_from(peer)); }
  static std::uint64_t mixed(std::int64_t value) {
    return static_cast<std::uint64_t>(value) * 0x9E3779B97F4A7C15ULL;
  }
  // The messages of a call that all ranks issue carry its number and terms.
  void number_transfers() {
    const std::uint64_t terms = call_.fingerprint();
    for (std::vector<Transfer>* transfers : {&plan_.sends, &plan_.receives}) {
      for (Transfer& transfer : *transfers) {
        transfer.number = call_.site.sequence;
        transfer.terms ^= terms;
      }
    }
  }

  std::int64_t rows_to(int peer) const { return rows_of(call_.rows_sent, peer); }
  std::int64_t rows_from(int peer) const { return rows_of(call_.rows_received, peer); }
  static std::int64_t rows_of(const std::vector<std::int64_t>& rows, int peer) {
    return rows.empty() ? 0 : rows[static_cast<std::size_t>(peer)];
  }

  // `count` rows of each member, from row `first` on.
  template <class Place>
  std::vector<Piece> rows_pieces(std::int64_t first, std::int64_t count, Place place) const {
    std::vector<Piece> pieces;
    for (const ResolvedMember& member : call_.members) {
      const std::size_t offset = bytes(first * member.row_elements);
      pieces.push_back({plus(place(member), offset), bytes(count * member.row_elements)});
    }
    return pieces;
  }

  void plan_all_to_all() {
    std::int64_t sent = 0, received = 0;
    for (int peer = 0; peer < size_; ++peer) {
      const std::vector<Piece> out = rows_pieces(
          sent, rows_to(peer), [](const ResolvedMember& member) { return sendable(member.input); });
      const std::vector<Piece> in = rows_pieces(
          received, rows_from(peer), [](const ResolvedMember& member) { return member.output; });
      sent += rows_to(peer);
      received += rows_from(peer);
      if (peer != rank_) {
        send(std::span(&peer, 1), out);
        receive(peer, in);
        continue;
      }
      for (std::size_t i = 0; i < in.size(); ++i)
        plan_.before.push_back({in[i].data, out[i].data, in[i].bytes});
    }
  }

  void plan_scatter() {
    const auto parts_of = [this](int rank) {
      std::vector<Piece> parts;
      for (const ResolvedMember& member : call_.members)
        parts.push_back(part(sendable(member.input), rank, member.count_out));
      return parts;
    };
    if (rank_ == call_.root) {
      for (int peer : peers_) send(std::span(&peer, 1), parts_of(peer));
      const std::vector<Piece> own = parts_of(rank_);
      for (std::size_t i = 0; i < own.size(); ++i)
        plan_.before.push_back({call_.members[i].output, own[i].data, own[i].bytes});
      return;
    }
    std::vector<Piece> mine;
    for (const ResolvedMember& member : call_.members)
      mine.push_back({member.output, bytes(member.count_out)});
    receive(call_.root, mine);
  }

  // Each tensor of an exchange is a message of its own; those to this rank itself are copies.
  void plan_messages() {
    const auto transfer = [this](const ResolvedMessage& message) {
      const std::uint64_t terms = mixed(message.count * 64 + static_cast<int>(call_.dtype) + 1) ^
                                  mixed(1 + static_cast<int>(call_.channel)) << 7;
      return Transfer{message.peer, message.data, bytes(message.count), message.place, terms};
    };
    for (const ResolvedMessage& message : call_.sends) {
      if (message.peer != rank_) plan_.sends.push_back(transfer(message));
    }
    for (const ResolvedMessage& message : call_.receives) {
      if (message.peer != rank_) {
        plan_.receives.push_back(transfer(message));
        continue;
      }
      for (const ResolvedMessage& sent : call_.sends) {
        if (sent.peer == rank_ && sent.place == message.place)
          plan_.before.push_back({message.data, sent.data, bytes(message.count)});
      }
    }
  }

  void plan_broadcast() {
    std::vector<Piece> pieces;
    for (const ResolvedMember& member : call_.members)
      pieces.push_back(
          {rank_ == call_.root ? sendable(member.input) : member.output, bytes(member.count_in)});
    if (rank_ == call_.root) {
      send(peers_, pieces);
    } else {
      receive(call_.root, pieces);
    }
  }

  const ResolvedCollective& call_;
  int size_;
  int rank_;
  std::byte* staging_;
  std::size_t staged_ = 0;
  std::vector<int> peers_;
  ExchangePlan plan_;
};

}  // namespace

PlannedExchange plan_exchange(const ResolvedCollective& call, int size,
                              const DeviceStream& stream) {
  Planner counting(call, size, nullptr);
  ExchangePlan plan = counting.make();
  if (counting.staged() == 0) return {std::move(plan), MemoryBlock()};
  MemoryBlock staging =
      MemoryBlock::take(counting.staged(), stream, MemoryCategory::kCommunication);
  plan = Planner(call, size, static_cast<std::byte*>(staging.data())).make();
  return {std::move(plan), std::move(staging)};
}

void run_copies(const std::vector<ByteCopy>& copies) {
  for (const ByteCopy& copy : copies) {
    if (copy.bytes > 0 && copy.to != copy.from) std::memcpy(copy.to, copy.from, copy.bytes);
  }
}

void run_reductions(const ExchangePlan& plan, DType dtype, ReduceOp op) {
  for (const OrderedReduction& reduction : plan.reductions) {
    if (reduction.count > 0)
      reduce_in_order(dtype, op, reduction.sources, reduction.out, reduction.count);
  }
}

}  // namespace tessera::distributed
