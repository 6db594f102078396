#include "tessera/distributed/parameters/rank_equality.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/distributed/objects.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/random.h"

namespace tessera::distributed {
namespace {

constexpr const char* kWhere = "assert_equal_across_ranks";

// What one rank says of one tensor. Ranks agree on `what`, and on `bits` where they agree on
// `part`.
struct Entry {
  std::string name;
  std::string what;
  std::string part;
  std::string bits;
};

std::string bits_of(const Tensor& x) {
  if (x.device().is_null() || x.numel() == 0) return "";
  const Tensor flat = contiguous(x);
  const auto size = static_cast<std::int64_t>(dtype_size(x.dtype()));
  const std::vector<std::uint8_t> bytes =
      Tensor::over(flat.storage(), {flat.numel() * size}, {1}, flat.offset() * size, DType::kU8)
          .to_vector<std::uint8_t>();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return fmt::format("{:016x}{:016x}", random::named_key(1, text).value,
                     random::named_key(2, text).value);
}

std::string kind_text(DType dtype, const Shape& shape) {
  return fmt::format("{} {}", dtype_name(dtype), shape.str());
}

Entry entry_of(const std::string& name, const Tensor& x) {
  if (!x.defined()) return {.name = name, .what = "undefined", .part = "", .bits = ""};
  return {.name = name, .what = kind_text(x.dtype(), x.shape()), .part = "", .bits = bits_of(x)};
}

Entry entry_of(const std::string& name, const nn::Parameter& p) {
  const nn::ShardSpec& spec = p.spec();
  Entry out{.name = name, .what = kind_text(p.dtype(), spec.global_shape), .part = "", .bits = ""};
  if (!spec.is_whole()) out.what += fmt::format(" over {}", fmt::join(spec.sharded_axes, ", "));
  for (const nn::ShardBox& box : spec.boxes) out.part += box.offset.str() + box.extent.str();
  p.is_materialized() ? out.bits = bits_of(p.local().tensor()) : out.what += ", not materialised";
  return out;
}

Entry entry_of(const std::string& name, const nn::Buffer& b) {
  if (b.is_materialized()) return entry_of(name, b.tensor());
  return {.name = name,
          .what = kind_text(b.dtype(), b.shape()) + ", not materialised",
          .part = "",
          .bits = ""};
}

// As they are sent: four texts for each.
std::string packed(const std::vector<Entry>& entries) {
  std::vector<std::string> texts;
  for (const Entry& entry : entries)
    texts.insert(texts.end(), {entry.name, entry.what, entry.part, entry.bits});
  return packed_texts(texts);
}

std::vector<Entry> unpacked(const std::string& text) {
  const std::vector<std::string> texts = unpacked_texts(text);
  std::vector<Entry> out;
  for (std::size_t i = 0; i + 3 < texts.size(); i += 4)
    out.push_back({texts[i], texts[i + 1], texts[i + 2], texts[i + 3]});
  return out;
}

using RankEntries = std::map<std::string, Entry>;

RankEntries by_name(const std::vector<Entry>& entries) {
  RankEntries out;
  for (const Entry& entry : entries) out.emplace(entry.name, entry);
  return out;
}

// What the ranks of a group say.
struct Answers {
  const std::vector<int>& world_ranks;
  std::vector<RankEntries> entries{};

  // How the first rank that differs does so; empty where none does.
  std::string difference(const std::string& name) const {
    std::map<std::string, std::size_t> parts;  // the first rank that holds each
    for (std::size_t rank = 0; rank < entries.size(); ++rank) {
      if (what(rank, name) != what(0, name)) {
        return fmt::format("{} on rank {}, {} on rank {}", what(0, name), world_ranks[0],
                           what(rank, name), world_ranks[rank]);
      }
      const auto entry = entries[rank].find(name);
      if (entry == entries[rank].end()) continue;
      const std::size_t first = parts.emplace(entry->second.part, rank).first->second;
      if (entries[first].at(name).bits != entry->second.bits) {
        return fmt::format("the elements of rank {} are not those of rank {}", world_ranks[rank],
                           world_ranks[first]);
      }
    }
    return {};
  }

 private:
  std::string what(std::size_t rank, const std::string& name) const {
    const auto found = entries[rank].find(name);
    return found == entries[rank].end() ? "missing" : found->second.what;
  }
};

// All names, in the order of the first rank that has them.
std::vector<std::string> names_in(const std::vector<std::vector<Entry>>& all) {
  std::vector<std::string> out;
  std::map<std::string, bool> seen;
  for (const std::vector<Entry>& entries : all) {
    for (const Entry& entry : entries) {
      if (seen.emplace(entry.name, true).second) out.push_back(entry.name);
    }
  }
  return out;
}

// Entries are matched by name: the second of one name is its own.
void number_repeated(std::vector<Entry>& entries) {
  std::map<std::string, int> seen;
  for (Entry& entry : entries) {
    const int times = ++seen[entry.name];
    if (times > 1) entry.name += fmt::format(" (number {})", times);
  }
}

void compare(ProcessGroup& group, std::vector<Entry> mine) {
  number_repeated(mine);
  std::vector<std::vector<Entry>> all;
  Answers answers{group.ranks()};
  for (const std::string& text : all_gather_texts(group, packed(mine)))
    answers.entries.push_back(by_name(all.emplace_back(unpacked(text))));
  const std::vector<std::string> names = names_in(all);
  std::vector<std::string> differing;
  for (const std::string& name : names) {
    const std::string text = answers.difference(name);
    if (!text.empty()) differing.push_back(fmt::format("\"{}\" ({})", name, text));
  }
  TESSERA_CHECK_AS(
      StateError, differing.empty(), kWhere,
      "{} of {} differ between the ranks of group \"{}\": {}; start them from one seed "
      "or one file, and give all ranks the same gradients",
      differing.size(), names.size(), group.name(), fmt::join(differing, ", "));
}

template <class Member>
void compare_members(ProcessGroup& group, std::span<const Member> members) {
  std::vector<Entry> entries;
  for (const Member& member : members) entries.push_back(entry_of(member.name(), member));
  compare(group, std::move(entries));
}

}  // namespace

void assert_equal_across_ranks(ProcessGroup& group, std::span<const NamedTensor> tensors) {
  std::vector<Entry> entries;
  for (const NamedTensor& named : tensors) entries.push_back(entry_of(named.name, named.tensor));
  compare(group, std::move(entries));
}

void assert_equal_across_ranks(ProcessGroup& group, std::span<const nn::Parameter> parameters) {
  compare_members(group, parameters);
}

void assert_equal_across_ranks(ProcessGroup& group, std::span<const nn::Buffer> buffers) {
  compare_members(group, buffers);
}

void assert_equal_across_ranks(ProcessGroup& group, const nn::Module& module) {
  std::vector<Entry> entries;
  for (const nn::NamedParameter& named : module.named_parameters())
    entries.push_back(entry_of(named.name, named.parameter));
  for (const nn::NamedBuffer& named : module.named_buffers())
    entries.push_back(entry_of(named.name, named.buffer));
  compare(group, std::move(entries));
}

}  // namespace tessera::distributed
