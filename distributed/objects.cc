#include "tessera/distributed/objects.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tessera/distributed/collectives.h"
#include "tessera/tensor/check.h"

namespace tessera::distributed {
namespace {

constexpr const char* kLabel = "objects";

Tensor bytes_of(std::string text, std::int64_t size) {
  text.resize(static_cast<std::size_t>(size));
  return Tensor::from_vector(std::vector<std::uint8_t>(text.begin(), text.end()), {size}, kCpu);
}

std::vector<std::int64_t> sizes_of(ProcessGroup& group, const std::string& mine) {
  const Tensor size =
      Tensor::from_vector<std::int64_t>({static_cast<std::int64_t>(mine.size())}, {1}, kCpu);
  const Tensor all = Tensor::empty({group.size()}, {.dtype = DType::kI64, .device = kCpu});
  all_gather(group, std::vector{size}, std::vector{all}, kLabel);
  return all.to_vector<std::int64_t>();
}

// `all`: a row of the largest size for each rank.
std::vector<std::string> texts_in(const Tensor& all, const std::vector<std::int64_t>& sizes) {
  const std::vector<std::uint8_t> bytes = all.to_vector<std::uint8_t>();
  std::vector<std::string> out;
  for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
    const auto row = bytes.begin() + static_cast<std::ptrdiff_t>(rank) * all.dim(1);
    out.emplace_back(row, row + sizes[rank]);
  }
  return out;
}

// CBOR, unlike JSON's text, keeps NaN, infinities and every bit of a number.
std::string packed(const Json& value) {
  const std::vector<std::uint8_t> bytes = Json::to_cbor(value);
  return {bytes.begin(), bytes.end()};
}

Json unpacked(const ProcessGroup& group, const std::string& text, int from) {
  Json value = Json::from_cbor(text, /*strict=*/true, /*allow_exceptions=*/false);
  if (value.is_discarded()) {
    throw CollectiveError(
        error_text("objects", fmt::format("what came from rank {} of group \"{}\" is not JSON: {} "
                                          "bytes; do all ranks ask for objects?",
                                          from, group.name(), text.size())),
        {.rank = group.rank(),
         .group = group.name(),
         .op = "objects",
         .sequence = 0,
         .label = kLabel});
  }
  return value;
}

std::vector<Json> all_unpacked(const ProcessGroup& group, const std::vector<std::string>& texts) {
  std::vector<Json> out;
  for (const std::string& text : texts)
    out.push_back(unpacked(group, text, static_cast<int>(out.size())));
  return out;
}

}  // namespace

std::string broadcast_text(ProcessGroup& group, const std::string& text, int root) {
  const Tensor size =
      Tensor::from_vector<std::int64_t>({static_cast<std::int64_t>(text.size())}, {1}, kCpu);
  broadcast(group, std::vector{size}, root, kLabel);
  const Tensor bytes = bytes_of(text, size.item<std::int64_t>());
  broadcast(group, std::vector{bytes}, root, kLabel);
  const std::vector<std::uint8_t> out = bytes.to_vector<std::uint8_t>();
  return {out.begin(), out.end()};
}

std::vector<std::string> gather_texts(ProcessGroup& group, const std::string& text, int root) {
  const std::vector<std::int64_t> sizes = sizes_of(group, text);
  const std::int64_t largest = *std::max_element(sizes.begin(), sizes.end());
  const Tensor mine = bytes_of(text, largest);
  std::vector<Tensor> outputs;
  if (group.rank() == root)
    outputs = {Tensor::empty({group.size(), largest}, {.dtype = DType::kU8, .device = kCpu})};
  gather(group, std::vector{mine}, outputs, root, kLabel).synchronize();
  return outputs.empty() ? std::vector<std::string>() : texts_in(outputs.front(), sizes);
}

std::vector<std::string> all_gather_texts(ProcessGroup& group, const std::string& text) {
  const std::vector<std::int64_t> sizes = sizes_of(group, text);
  const std::int64_t largest = *std::max_element(sizes.begin(), sizes.end());
  const Tensor mine = bytes_of(text, largest);
  const Tensor all = Tensor::empty({group.size(), largest}, {.dtype = DType::kU8, .device = kCpu});
  all_gather(group, std::vector{mine}, std::vector{all}, kLabel);
  return texts_in(all, sizes);
}

Json broadcast_object(ProcessGroup& group, const Json& value, int root) {
  return unpacked(group, broadcast_text(group, packed(value), root), root);
}

std::vector<Json> gather_objects(ProcessGroup& group, const Json& value, int root) {
  return all_unpacked(group, gather_texts(group, packed(value), root));
}

std::vector<Json> all_gather_objects(ProcessGroup& group, const Json& value) {
  return all_unpacked(group, all_gather_texts(group, packed(value)));
}

std::string packed_texts(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& text : texts)
    out += packed_numbers({static_cast<std::int64_t>(text.size())}) + text;
  return out;
}

std::vector<std::string> unpacked_texts(const std::string& packed) {
  std::vector<std::string> out;
  std::uint64_t size = 0;
  for (std::size_t at = 0; at < packed.size(); at += size) {
    const std::size_t left = packed.size() - at;
    if (left >= sizeof(size)) std::memcpy(&size, packed.data() + at, sizeof(size));
    TESSERA_CHECK(left >= sizeof(size) && size <= left - sizeof(size), "unpacked_texts",
                  "{} bytes are not a packed list of texts: number {} is cut off; do all ranks ask "
                  "for the same?",
                  packed.size(), out.size());
    at += sizeof(size);
    out.push_back(packed.substr(at, size));
  }
  return out;
}

std::string packed_numbers(const std::vector<std::int64_t>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(std::int64_t)};
}

std::vector<std::int64_t> unpacked_numbers(const std::string& packed) {
  TESSERA_CHECK(packed.size() % sizeof(std::int64_t) == 0, "unpacked_numbers",
                "{} bytes are not packed numbers of 8 bytes each; do all ranks ask for the same?",
                packed.size());
  std::vector<std::int64_t> out(packed.size() / sizeof(std::int64_t));
  if (!out.empty()) std::memcpy(out.data(), packed.data(), packed.size());
  return out;
}

}  // namespace tessera::distributed
