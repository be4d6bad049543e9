#include "capture/capture_geometry.hpp"

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

#include "base/format.hpp"
#include "file/bytes.hpp"

namespace seriatim {
namespace {

using Json = nlohmann::json;

Status fault(Code code, std::string_view what) {
  return Status::error(code, "geometry", formatted("geometry: {}", what));
}

// Reads keys one by one and remembers the first fault and which keys were known.
class ObjectReader {
 public:
  explicit ObjectReader(const Json& object) : object_(object) {}

  const Json* find(const char* key, bool required) {
    known_.insert(key);
    const auto it = object_.find(key);
    if (it != object_.end()) return &*it;
    if (required) note(formatted("no {}", key));
    return nullptr;
  }

  void integer(const char* key, std::int64_t& to, bool required = true) {
    const Json* value = find(key, required);
    if (value == nullptr) return;
    if (!value->is_number_integer() || (value->is_number_unsigned() && value->get<std::uint64_t>() > kMost)) {
      return note(formatted("{} is not an integer of 64 bits", key));
    }
    to = value->get<std::int64_t>();
  }

  void number(const char* key, double& to, bool required = true) {
    const Json* value = find(key, required);
    if (value == nullptr) return;
    if (!value->is_number()) return note(formatted("{} is not a number", key));
    to = value->get<double>();
  }

  void boolean(const char* key, bool& to) {
    const Json* value = find(key, false);
    if (value == nullptr) return;
    if (!value->is_boolean()) return note(formatted("{} is not true or false", key));
    to = value->get<bool>();
  }

  template <typename Number>
  void word(const char* key, Number& to, std::optional<Number> (*named)(std::string_view)) {
    const Json* value = find(key, false);
    if (value == nullptr) return;
    const auto number = value->is_string() ? named(value->get_ref<const std::string&>()) : std::nullopt;
    if (!number) return note(formatted("{} is not one of the known words", key));
    to = *number;
  }

  Status finish() const {
    if (!fault_.empty()) return fault(Code::kCorrupt, fault_);
    for (const auto& item : object_.items()) {
      if (!known_.contains(item.key()))
        return fault(Code::kUnsupported, formatted("unknown key {}", file::printable(item.key())));
    }
    return {};
  }

 private:
  static constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  void note(std::string what) {
    if (fault_.empty()) fault_ = std::move(what);
  }
  const Json& object_;
  std::set<std::string, std::less<>> known_;
  std::string fault_;
};

}  // namespace

Result<GeometryOptions> parse_geometry(std::string_view json) {
  const Json object = Json::parse(json, nullptr, false);
  if (!object.is_object()) return fault(Code::kCorrupt, "not a JSON object");
  GeometryOptions options;
  double norm_eps = options.norm_eps;
  ObjectReader read(object);
  read.integer("group_tokens", options.group_tokens);
  read.integer("budget_tokens", options.budget_tokens);
  read.integer("query_heads", options.query_heads);
  read.integer("kv_heads", options.kv_heads);
  read.integer("head_dim", options.head_dim);
  read.integer("value_dim", options.value_dim, false);
  read.integer("index_heads", options.index_heads);
  read.integer("index_dim", options.index_dim);
  read.integer("index_rotary_dim", options.index_rotary_dim);
  read.number("rope_theta", options.rope_theta);
  read.number("norm_eps", norm_eps);
  double scale = 0.0;
  if (object.contains("softmax_scale")) {
    read.number("softmax_scale", scale);
    options.softmax_scale = static_cast<float>(scale);
  }
  read.word("tail", options.tail, tail_named);
  read.integer("forced_first", options.forced_first, false);
  read.integer("forced_newest", options.forced_newest, false);
  read.boolean("forced_outside", options.forced_outside);
  read.integer("selections", options.selections, false);
  read.word("pooling", options.pooling, pooling_named);
  read.boolean("relu", options.relu);
  read.word("scale_at", options.scale_at, scale_at_named);
  options.norm_eps = static_cast<float>(norm_eps);
  if (Status s = read.finish(); !s.ok()) return s;
  return options;
}

}  // namespace seriatim
