// A selection dump as an engine writes it, with nothing of Seriatim; then, as a user of it would, the verdict on it.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "seriatim/check.hpp"

namespace {

void write_dump(const std::string& path, const std::vector<std::int32_t>& rows, std::size_t width,
                const std::vector<std::int32_t>& visible) {
  const auto tensor = [](const std::string& name, const std::string& shape, std::size_t begin, std::size_t end) {
    return ",\"" + name + R"(":{"dtype":"I32","shape":[)" + shape + R"(],"data_offsets":[)" + std::to_string(begin) +
           "," + std::to_string(end) + "]}";
  };
  const std::string queries = std::to_string(visible.size());
  const std::size_t rows_end = rows.size() * 4;
  std::string header = R"({"__metadata__":{"seriatim":"selection/1","group_tokens":"4","budget_tokens":"2048"})";
  header += tensor("rows", queries + "," + std::to_string(width), 0, rows_end);
  header += tensor("visible", queries, rows_end, rows_end + visible.size() * 4) + "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = header.size();
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&length), 8);
  out << header;
  out.write(reinterpret_cast<const char*>(rows.data()), static_cast<std::streamsize>(rows_end));
  out.write(reinterpret_cast<const char*>(visible.data()), static_cast<std::streamsize>(visible.size() * 4));
}

// How many of the dump's rows break a promise, or -1.
std::int64_t faulty_rows(const std::string& path) {
  const auto selection = seriatim::open_selection(path);
  if (!selection.ok()) return -1;
  const auto report = seriatim::check(**selection);
  return report.ok() ? report->faulty_rows : -1;
}

}  // namespace

int main() {
  const std::string path = "example_write_dump.safetensors";
  write_dump(path, {0, 1, 2, 3, 4, 0, 1, 2, 3, -1}, 5, {5, 4});
  const std::int64_t right = faulty_rows(path);
  write_dump(path, {0, 1, 2, 3, 4, 0, 1, 3, 2, -1}, 5, {5, 4});  // the second row is not in time order
  const std::int64_t wrong = faulty_rows(path);
  std::filesystem::remove(path);
  std::printf("rows that break a promise: %d, then %d\n", static_cast<int>(right), static_cast<int>(wrong));
  return right == 0 && wrong == 1 ? 0 : 1;
}
