// Prompt lookup: where the last tokens of a text stood before, most recently (Saxena, "Prompt lookup decoding", 2023).
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace octavo {

// One text that grows. For each n in [min_n, max_n] a table knows where each n-gram with a token behind it ended last:
//
//     tokens    a b c a b x a b          n = 2: "a b" -> 5, the place of x
//     end       1 2 3 4 5 6 7 8          the last "a b" has nothing behind it, and is not in the table yet
//
// A token costs max_n steps; tables hold text positions only and compare tokens, so a match is never a false one.
class NgramIndex {
 public:
  // std::invalid_argument unless 1 <= min_n <= max_n <= 32.
  NgramIndex(int min_n, int max_n);

  void extend(const int32_t* token_ids, size_t count);

  struct Match {
    int length;   // of the longest n-gram at the end of the text that stood before; 0: none
    size_t next;  // the place behind its most recent earlier occurrence
  };
  Match longest_match() const;

  // What stood behind the match, at most max_tokens. Where that runs into the end of the text it goes on with itself, so
  // that a text which repeats is continued for as long as asked.
  std::vector<int32_t> continuation(const Match& match, int max_tokens) const;

  size_t size() const { return tokens_.size(); }
  size_t num_bytes() const;

 private:
  using Table = std::vector<int32_t>;  // open addressing, a power of two, at most half full; ends, 0 is empty

  bool same(size_t end, size_t other, int n) const;
  size_t find(const Table& table, uint64_t hash, size_t end, int n) const;
  uint64_t hash_of(size_t end, int n) const;
  void record(size_t end);
  void grow(int n);

  int min_n_, max_n_;
  std::vector<int32_t> tokens_;
  std::vector<Table> tables_;  // [n - min_n]
  std::vector<size_t> used_;   // [n - min_n]
};

}  // namespace octavo
