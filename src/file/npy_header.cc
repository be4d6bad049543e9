#include "file/npy_header.hpp"

#include <charconv>
#include <utility>

#include "base/format.hpp"
#include "file/bytes.hpp"

namespace seriatim::file {

namespace {

constexpr std::size_t kMaxExtents = 32;

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<NpyHeader> dictionary() {
    if (!take('{')) return corrupt("does not begin with '{'");
    while (!take('}')) {
      Status status = pair();
      if (!status.ok()) return status;
      if (take(',')) continue;
      if (!take('}')) return corrupt("has neither ',' nor '}' after a value");
      break;
    }
    skip_blanks();
    if (at_ != text_.size()) return corrupt("goes on after its dictionary");
    if (!has_descr_) return corrupt("has no 'descr'");
    if (!has_order_) return corrupt("has no 'fortran_order'");
    if (!has_shape_) return corrupt("has no 'shape'");
    return std::move(header_);
  }

 private:
  Status pair() {
    std::string_view key;
    if (!string(key)) return corrupt("has a key that is no plain string");
    if (!take(':')) return corrupt("has no ':' after a key");
    if (key == "descr") return std::exchange(has_descr_, true) ? corrupt("has 'descr' twice") : descr();
    if (key == "fortran_order") {
      return std::exchange(has_order_, true) ? corrupt("has 'fortran_order' twice") : fortran_order();
    }
    if (key == "shape") return std::exchange(has_shape_, true) ? corrupt("has 'shape' twice") : shape();
    return corrupt(formatted("has an unknown key {}", printable(key)));
  }

  Status descr() {
    std::string_view text;
    if (next_is('[')) return Status::error(Code::kUnsupported, "header", "header: the dtype has fields");
    if (!string(text)) return corrupt("'descr' is no plain string");
    header_.descr = text;
    return {};
  }

  Status fortran_order() {
    if (take_word("True")) {
      header_.fortran_order = true;
      return {};
    }
    return take_word("False") ? Status{} : corrupt("'fortran_order' is neither True nor False");
  }

  // (), (N,) or (N, N, ...) with or without a last comma; (N) is a number in Python, not a tuple.
  Status shape() {
    if (!take('(')) return corrupt("'shape' is no tuple");
    bool comma = true;  // before the next extent, or none needed
    while (!take(')')) {
      if (!comma) return corrupt("'shape' has no ',' between extents");
      if (header_.shape.size() == kMaxExtents) {
        return Status::error(Code::kUnsupported, "header", formatted("header: more than {} extents", kMaxExtents));
      }
      std::int64_t extent = 0;
      if (!integer(extent)) return corrupt("'shape' holds what is no decimal number from 0 to 2^63 - 1");
      header_.shape.push_back(extent);
      comma = take(',');
    }
    if (header_.shape.size() == 1 && !comma) return corrupt("'shape' is a number, not a tuple");
    return {};
  }

  // A quoted string without escapes; none of the words that a header may hold needs one.
  bool string(std::string_view& out) {
    if (!next_is('\'') && !next_is('"')) return false;
    const char quote = text_[at_++];
    const std::size_t end = text_.find(quote, at_);
    if (end == std::string_view::npos) return false;
    out = text_.substr(at_, end - at_);
    at_ = end + 1;
    return out.find_first_of("\\\n\r") == std::string_view::npos;
  }

  bool integer(std::int64_t& out) {
    skip_blanks();
    const char* begin = text_.data() + at_;
    if (at_ == text_.size() || *begin < '0' || *begin > '9') return false;  // from_chars would take a sign
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), out);
    const auto digits = static_cast<std::size_t>(end - begin);
    if (error != std::errc{} || (digits > 1 && *begin == '0')) return false;
    at_ += digits;
    return true;
  }

  bool take(char c) {
    if (!next_is(c)) return false;
    ++at_;
    return true;
  }

  bool take_word(std::string_view word) {
    skip_blanks();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  bool next_is(char c) {
    skip_blanks();
    return at_ < text_.size() && text_[at_] == c;
  }

  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }

  static Status corrupt(std::string_view why) {
    return Status::error(Code::kCorrupt, "header", formatted("header: {}", why));
  }

  std::string_view text_;
  std::size_t at_ = 0;
  NpyHeader header_;
  bool has_descr_ = false;
  bool has_order_ = false;
  bool has_shape_ = false;
};

}  // namespace

Result<NpyHeader> parse_npy_header(std::string_view text) { return Parser(text).dictionary(); }

}  // namespace seriatim::file
