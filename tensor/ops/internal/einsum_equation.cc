#include "tessera/tensor/ops/internal/einsum_equation.h"

#include <map>
#include <string>

#include "tessera/tensor/check.h"

namespace tessera::ops {
namespace {

constexpr const char* kWhere = "einsum";
constexpr std::string_view kEllipsis = "...";

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// The letters before and after an ellipsis.
struct Subscript {
  std::string text;
  DimLabels before;
  DimLabels after;
  bool has_ellipsis = false;

  int letters() const { return static_cast<int>(before.size() + after.size()); }
  // The label of each dim, where the ellipsis stands for `hidden` of them.
  DimLabels labels(int hidden) const {
    DimLabels all = before;
    for (int label = -hidden; label < 0; ++label) all.push_back(label);
    all.insert(all.end(), after.begin(), after.end());
    return all;
  }
};

Subscript parse_subscript(std::string_view equation, std::string_view text) {
  Subscript out{.text = std::string(text), .before = {}, .after = {}};
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i, kEllipsis.size()) == kEllipsis) {
      TESSERA_CHECK(!out.has_ellipsis, kWhere, "\"{}\" has two ellipses in \"{}\"; one is legal",
                    equation, text);
      out.has_ellipsis = true;
      i += kEllipsis.size() - 1;
      continue;
    }
    TESSERA_CHECK(is_letter(text[i]), kWhere,
                  "\"{}\" has '{}' where a label is expected; labels are letters, an ellipsis is "
                  "\"...\"",
                  equation, text[i]);
    (out.has_ellipsis ? out.after : out.before).push_back(text[i]);
  }
  return out;
}

std::vector<std::string_view> split_at_commas(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::size_t end; (end = text.find(',')) != std::string_view::npos;) {
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  parts.push_back(text);
  return parts;
}

// The dims that the operand's ellipsis stands for.
int hidden_dims(std::string_view equation, std::size_t operand, const Subscript& subscript,
                const Shape& shape) {
  const int hidden = shape.ndim() - subscript.letters();
  TESSERA_CHECK(subscript.has_ellipsis ? hidden >= 0 : hidden == 0, kWhere,
                "operand {} of \"{}\" has shape {}, its labels \"{}\" name {}{} dims", operand,
                equation, shape.str(), subscript.text, subscript.has_ellipsis ? "at least " : "",
                subscript.letters());
  return hidden;
}

std::string name_of(int label) {
  return label > 0 ? fmt::format("label '{}'", static_cast<char>(label))
                   : fmt::format("dim {} of the ellipsis", label);
}

// Compares extents: equal within an operand, which is a diagonal; equal or 1 among operands.
void check_extents(std::string_view equation, const std::vector<DimLabels>& operands,
                   std::span<const Shape> shapes) {
  std::map<int, std::int64_t> all;  // of extents other than 1
  for (std::size_t i = 0; i < operands.size(); ++i) {
    std::map<int, std::int64_t> own;
    for (std::size_t d = 0; d < operands[i].size(); ++d) {
      const int label = operands[i][d];
      const std::int64_t extent = shapes[i][static_cast<int>(d)];
      const std::int64_t first = own.try_emplace(label, extent).first->second;
      TESSERA_CHECK(first == extent, kWhere,
                    "{} of \"{}\" repeats in operand {} of shape {} with extents {} and {}; a "
                    "diagonal needs equal ones",
                    name_of(label), equation, i, shapes[i].str(), first, extent);
      if (extent == 1) continue;
      const std::int64_t other = all.try_emplace(label, extent).first->second;
      TESSERA_CHECK(other == extent, kWhere,
                    "{} of \"{}\" has extent {} in operand {} of shape {}, and {} before; extents "
                    "are equal, or 1",
                    name_of(label), equation, extent, i, shapes[i].str(), other);
    }
  }
}

// The dims under ellipses, then the letters that occur once, sorted.
DimLabels implicit_output(const std::vector<DimLabels>& operands, int hidden) {
  std::map<int, int> counts;
  for (const DimLabels& labels : operands)
    for (int label : labels) ++counts[label];
  DimLabels out;
  for (int label = -hidden; label < 0; ++label) out.push_back(label);
  for (const auto& [label, count] : counts)
    if (label > 0 && count == 1) out.push_back(label);
  return out;
}

DimLabels explicit_output(std::string_view equation, std::string_view text,
                          const std::vector<DimLabels>& operands, int hidden) {
  const Subscript subscript = parse_subscript(equation, text);
  DimLabels out;
  for (int label : subscript.labels(hidden * (subscript.has_ellipsis ? 1 : 0))) {
    TESSERA_CHECK(!has_label(out, label), kWhere, "the output of \"{}\" has {} twice", equation,
                  name_of(label));
    const bool is_known =
        std::any_of(operands.begin(), operands.end(),
                    [&](const DimLabels& labels) { return has_label(labels, label); });
    TESSERA_CHECK(is_known, kWhere, "the output of \"{}\" has {}, which no operand has", equation,
                  name_of(label));
    out.push_back(label);
  }
  return out;
}

}  // namespace

EinsumEquation parse_einsum(std::string_view equation, std::span<const Shape> shapes) {
  std::string text(equation);
  std::erase(text, ' ');
  const std::size_t arrow = text.find("->");
  const std::string_view left = std::string_view(text).substr(0, arrow);
  const std::vector<std::string_view> parts = split_at_commas(left);
  TESSERA_CHECK(parts.size() == shapes.size(), kWhere,
                "\"{}\" has labels for {} operands, got {}; commas separate them", equation,
                parts.size(), shapes.size());
  EinsumEquation out;
  int most_hidden = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Subscript subscript = parse_subscript(equation, parts[i]);
    const int hidden = hidden_dims(equation, i, subscript, shapes[i]);
    most_hidden = std::max(most_hidden, hidden);
    out.operands.push_back(subscript.labels(hidden));
  }
  check_extents(equation, out.operands, shapes);
  out.output = arrow == std::string::npos
                   ? implicit_output(out.operands, most_hidden)
                   : explicit_output(equation, std::string_view(text).substr(arrow + 2),
                                     out.operands, most_hidden);
  return out;
}

}  // namespace tessera::ops
