// Tables share chunks of pages, and hold no page that is not theirs.
#include "cache/table.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace seriatim {
namespace {

// A table and what it should list.
struct Listed {
  Ref<Table> table;
  std::vector<const Page*> pages;
};

class Tables {
 public:
  explicit Tables(unsigned seed) : random_(seed) {}

  void step() {
    const std::uint64_t kind = random_() % 8;
    if (kind < 3 || tables_.empty()) return derive();
    Listed& chosen = tables_[random_() % tables_.size()];
    if (kind == 3) return drop(chosen);
    if (kind == 4 && chosen.pages.size() > 0 && chosen.table.get()->exclusive()) return replace_last(chosen);
    push(chosen);
  }

  void check() const {
    std::set<const Page*> held;
    for (const Listed& listed : tables_) {
      ASSERT_EQ(listed.table->length(), static_cast<std::int64_t>(listed.pages.size()));
      for (std::size_t i = 0; i < listed.pages.size(); ++i) {
        const auto at = static_cast<std::int64_t>(i);
        ASSERT_EQ(&listed.table->page(at), listed.pages[i]);
        ASSERT_EQ(listed.table->data()[i], listed.pages[i]->data);
        held.insert(listed.pages[i]);
      }
    }
    ASSERT_EQ(pool_.count().used,
              static_cast<std::int64_t>(held.size()));  // each page is held while it is listed, and no longer
  }

  // Everything dropped, nothing is left.
  void finish() {
    tables_.clear();
    EXPECT_EQ(pool_.count().used, 0);
    EXPECT_EQ(ledger_.load(), 0);
  }

  std::int64_t longest = 0;

 private:
  // A table with a range of another's pages, and pages behind them, some of which go again.
  void derive() {
    Listed made;
    const Listed* from = tables_.empty() || random_() % 8 == 0 ? nullptr : &tables_[random_() % tables_.size()];
    const std::uint64_t length = from == nullptr ? 0 : from->pages.size();
    const auto begin = static_cast<std::int64_t>(random_() % 3 == 0 ? random_() % (length + 1) : 0);
    const std::int64_t end = static_cast<std::int64_t>(length) -
                             static_cast<std::int64_t>(random_() % (length - static_cast<std::uint64_t>(begin) + 1)) /
                                 (random_() % 2 == 0 ? 1 : 40);
    const auto added = static_cast<std::int64_t>(random_() % 50);
    made.table = Table::make(ledger_, from == nullptr ? nullptr : from->table.get(), begin, end, end - begin + added);
    if (from != nullptr) made.pages.assign(from->pages.begin() + begin, from->pages.begin() + end);
    for (std::int64_t i = 0; i < added; ++i) push(made);
    if (added > 0 && random_() % 3 == 0) {
      const std::int64_t kept = end - begin + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(added));
      made.table->pop_to(kept);
      made.pages.resize(static_cast<std::size_t>(kept));
    }
    longest = std::max(longest, made.table->length());
    if (tables_.size() < 8)
      tables_.push_back(std::move(made));
    else
      tables_[random_() % tables_.size()] = std::move(made);
  }
  void drop(Listed& chosen) {
    std::swap(chosen, tables_.back());
    tables_.pop_back();
  }
  void push(Listed& to) {
    if (to.table->length() == to.table->capacity()) return;
    auto page = pool_.acquire();
    ASSERT_TRUE(page.ok());
    to.pages.push_back(page->get());
    to.table->push(std::move(*page));
  }
  void replace_last(Listed& chosen) {
    auto page = pool_.acquire();
    ASSERT_TRUE(page.ok());
    chosen.pages.back() = page->get();
    chosen.table->replace_last(std::move(*page));
  }

  std::mt19937_64 random_;
  PagePool pool_{heap_page_allocator(), 64, 1 << 20};
  Ledger ledger_{0};
  std::vector<Listed> tables_;
};

TEST(CacheTable, RandomTablesListAndHoldWhatTheirDefinitionSays) {
  std::int64_t longest = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    Tables tables(seed);
    for (int i = 0; i < 300 && !testing::Test::HasFatalFailure(); ++i) {
      tables.step();
      tables.check();
    }
    longest = std::max(longest, tables.longest);
    tables.finish();
  }
  EXPECT_GT(longest, 4 * Chunk::kPages);
}

TEST(CacheTable, HoldsItsLastPageAloneOnlyWhenNoOtherTableListsIt) {
  PagePool pool(heap_page_allocator(), 64, 100);
  Ledger ledger{0};
  Ref<Table> table = Table::make(ledger, nullptr, 0, 0, 40);
  for (int i = 0; i < 40; ++i) table->push(std::move(*pool.acquire()));
  EXPECT_TRUE(table->holds_last_page_alone());
  {
    const Ref<Table> other = table;
    EXPECT_FALSE(table->holds_last_page_alone());
  }
  {
    const Ref<Table> other = Table::make(ledger, table.get(), 3, 40, 37);  // shares the chunk
    EXPECT_FALSE(table->holds_last_page_alone());
  }
  {
    const Ref<Table> other = Table::make(ledger, table.get(), 39, 40, 1);  // has the page in a chunk of its own
    EXPECT_FALSE(table->holds_last_page_alone());
  }
  const Ref<Table> shorter = Table::make(ledger, table.get(), 0, 39, 39);
  EXPECT_TRUE(table->holds_last_page_alone());
}

}  // namespace
}  // namespace seriatim
