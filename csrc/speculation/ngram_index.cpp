#include "speculation/ngram_index.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "speculation/hashing.h"

namespace octavo {
namespace {

constexpr int kMostN = 32;
constexpr size_t kFirstSlots = 64;

}  // namespace

NgramIndex::NgramIndex(int min_n, int max_n) : min_n_(min_n), max_n_(max_n) {
  if (min_n < 1 || max_n < min_n || max_n > kMostN)
    throw std::invalid_argument("min_n=" + std::to_string(min_n) + ", max_n=" + std::to_string(max_n) +
                                ": 1 <= min_n <= max_n <= " + std::to_string(kMostN) + " is needed");
  tables_.assign(static_cast<size_t>(max_n - min_n + 1), Table(kFirstSlots, 0));
  used_.assign(tables_.size(), 0);
}

void NgramIndex::extend(const int32_t* token_ids, size_t count) {
  for (size_t i = 0; i < count; i++) {
    record(tokens_.size());  // what ends here has a token behind it from now on
    tokens_.push_back(token_ids[i]);
  }
}

NgramIndex::Match NgramIndex::longest_match() const {
  Match best{0, 0};
  const size_t end = tokens_.size();
  for (int n = min_n_; n <= max_n_ && static_cast<size_t>(n) <= end; n++) {
    const Table& table = tables_[static_cast<size_t>(n - min_n_)];
    const int32_t found = table[find(table, hash_of(end, n), end, n)];
    if (found == 0) break;  // then nothing longer stood before either
    best = {n, static_cast<size_t>(found)};
  }
  return best;
}

std::vector<int32_t> NgramIndex::continuation(const Match& match, int max_tokens) const {
  std::vector<int32_t> out;
  if (match.length == 0) return out;
  for (size_t i = 0; i < static_cast<size_t>(max_tokens); i++) {
    const size_t place = match.next + i;
    out.push_back(place < tokens_.size() ? tokens_[place] : out[place - tokens_.size()]);
  }
  return out;
}

size_t NgramIndex::num_bytes() const {
  size_t slots = tokens_.capacity();
  for (const Table& table : tables_) slots += table.capacity();
  return slots * sizeof(int32_t);
}

bool NgramIndex::same(size_t end, size_t other, int n) const {
  const auto at = tokens_.begin();
  return std::equal(at + static_cast<ptrdiff_t>(end) - n, at + static_cast<ptrdiff_t>(end),
                    at + static_cast<ptrdiff_t>(other) - n);
}

// The slot of the n-gram that ends at `end`, or the empty one where it belongs.
size_t NgramIndex::find(const Table& table, uint64_t hash, size_t end, int n) const {
  const size_t mask = table.size() - 1;
  size_t slot = hash & mask;
  while (table[slot] != 0 && !same(end, static_cast<size_t>(table[slot]), n)) slot = (slot + 1) & mask;
  return slot;
}

uint64_t NgramIndex::hash_of(size_t end, int n) const {
  uint64_t hash = 0;
  for (int i = 1; i <= n; i++) hash = hash_with(hash, static_cast<uint32_t>(tokens_[end - static_cast<size_t>(i)]));
  return hash;
}

void NgramIndex::record(size_t end) {
  uint64_t hash = 0;
  for (int n = 1; n <= max_n_ && static_cast<size_t>(n) <= end; n++) {
    hash = hash_with(hash, static_cast<uint32_t>(tokens_[end - static_cast<size_t>(n)]));
    if (n < min_n_) continue;
    const size_t which = static_cast<size_t>(n - min_n_);
    if (2 * (used_[which] + 1) > tables_[which].size()) grow(n);
    const size_t slot = find(tables_[which], hash, end, n);
    used_[which] += tables_[which][slot] == 0;
    tables_[which][slot] = static_cast<int32_t>(end);
  }
}

void NgramIndex::grow(int n) {
  Table& old = tables_[static_cast<size_t>(n - min_n_)];
  Table wider(2 * old.size(), 0);
  for (const int32_t end : old)
    if (end != 0) {
      const auto place = static_cast<size_t>(end);
      wider[find(wider, hash_of(place, n), place, n)] = end;
    }
  old.swap(wider);
}

}  // namespace octavo
