// Runs of rows, tokens or positions.
#pragma once

namespace octavo {
namespace {

inline int at_most(int a, int b) {
  return a < b ? a : b;
}
inline int at_least(int a, int b) {
  return a > b ? a : b;
}
inline int clamp(int x, int low, int high) {
  return at_most(at_least(x, low), high);
}

// A run of rows, or of tokens: [begin, end).
struct Range {
  int begin, end;
  bool empty() const { return begin >= end; }
};

}  // namespace
}  // namespace octavo
