#include "tessera/nn/summary.h"

#include <algorithm>
#include <map>

#include "tessera/tensor/check.h"

namespace tessera::nn {
namespace {

struct Row {
  std::string name;
  std::string type;
  std::int64_t elements = 0;
  std::string members;
};

struct Totals {
  std::int64_t elements = 0, trainable = 0, bytes = 0, buffers = 0, buffer_bytes = 0;
};

std::int64_t bytes_of(const Shape& shape, DType dtype) {
  return shape.numel() * static_cast<std::int64_t>(dtype_size(dtype));
}

// Groups of three digits.
std::string grouped(std::int64_t number) {
  std::string text = std::to_string(number);
  for (auto i = static_cast<std::ptrdiff_t>(text.size()) - 3; i > 0; i -= 3) {
    text.insert(static_cast<std::size_t>(i), ",");
  }
  return text;
}

class Table {
 public:
  explicit Table(Module& root) {
    for (const NamedParameter& named : root.named_parameters()) {
      first_names_.emplace(named.parameter.id(), named.name);
      if (!dtype_) dtype_ = named.parameter.dtype();
    }
    for (const NamedModule& named : root.named_modules()) rows_.push_back(row(named));
  }

  std::string str() const {
    std::size_t name = 6, type = 4, count = 10;
    for (const Row& row : rows_) {
      name = std::max(name, row.name.size());
      type = std::max(type, row.type.size());
      count = std::max(count, grouped(row.elements).size());
    }
    std::string out =
        fmt::format("{:{}}  {:{}}  {:>{}}\n", "module", name, "type", type, "parameters", count);
    for (const Row& row : rows_) {
      std::string line = fmt::format("{:{}}  {:{}}  {:>{}}  {}", row.name, name, row.type, type,
                                     grouped(row.elements), count, row.members);
      line.erase(line.find_last_not_of(' ') + 1);
      out += line + "\n";
    }
    return out + fmt::format("{} parameters, {} trainable, {} bytes; {} buffers, {} bytes\n",
                             grouped(totals_.elements), grouped(totals_.trainable),
                             grouped(totals_.bytes), grouped(totals_.buffers),
                             grouped(totals_.buffer_bytes));
  }

 private:
  Row row(const NamedModule& named) {
    const auto level =
        named.name.empty() ? 0 : 1 + std::count(named.name.begin(), named.name.end(), '.');
    const std::string last = named.name.substr(named.name.rfind('.') + 1);
    Row row{.name = std::string(static_cast<std::size_t>(2 * level), ' ') +
                    (last.empty() ? named.module->type_name() : last),
            .type = named.module->type_name(),
            .members = {}};
    for (const NamedParameter& own : named.module->own_parameters()) add(named.name, own, row);
    for (const NamedBuffer& own : named.module->own_buffers()) add(own, row);
    return row;
  }

  static void append(Row& row, const std::string& text) {
    row.members += (row.members.empty() ? "" : ", ") + text;
  }

  void add(const std::string& module, const NamedParameter& own, Row& row) {
    const Parameter& p = own.parameter;
    const Shape& shape = p.spec().global_shape;
    std::string text = own.name + " " + shape.str();
    const std::string full = module.empty() ? own.name : module + "." + own.name;
    const std::string& first = first_names_.at(p.id());
    if (first != full) {
      append(row, text + " tied to " + first);
      return;
    }
    if (p.dtype() != dtype_) text += fmt::format(" {}", dtype_name(p.dtype()));
    if (!p.requires_grad()) text += " frozen";
    if (!p.spec().is_whole())
      text += fmt::format(" over {}", fmt::join(p.spec().sharded_axes, ", "));
    append(row, text);
    row.elements += shape.numel();
    totals_.elements += shape.numel();
    totals_.trainable += p.requires_grad() ? shape.numel() : 0;
    totals_.bytes += bytes_of(shape, p.dtype());
  }

  void add(const NamedBuffer& own, Row& row) {
    const Buffer& b = own.buffer;
    append(row, fmt::format("buffer {} {}{}", own.name, b.shape().str(),
                            b.dtype() == dtype_ ? "" : fmt::format(" {}", dtype_name(b.dtype()))));
    ++totals_.buffers;
    totals_.buffer_bytes += bytes_of(b.shape(), b.dtype());
  }

  std::map<const void*, std::string> first_names_;  // by Parameter::id()
  std::optional<DType> dtype_;                      // of the first parameter
  std::vector<Row> rows_;
  Totals totals_;
};

}  // namespace

std::string summary(Module& module) { return Table(module).str(); }

}  // namespace tessera::nn
