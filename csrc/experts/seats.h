// Which rows of a block meet which expert. Each meeting of a row and an expert has a seat: seats of one expert lie
// together, in the order of the rows, from a multiple of kRowsTogether on, so that the linear kernels see them as the rows
// of an ordinary input.
#pragma once
#include <cstdint>
#include <vector>

#include "executor/op.h"

namespace octavo {

class ExpertSeats {
 public:
  // An expert that some row meets, and its seats [begin, begin + rows).
  struct Party {
    int expert, begin, rows;
  };

  ExpertSeats(int experts, int top_k, int max_rows);

  // Seats the rows of a block. `routes` [2 * top_k]: ids, then weights.
  void make(const Buffer& routes, RowRange block);

  int top_k() const { return top_k_; }
  const std::vector<Party>& parties() const { return parties_; }
  // Of row `row` of the block and the expert in place `place` of its route.
  int seat(int row, int place) const { return seats_[static_cast<size_t>(row) * top_k_ + place]; }
  const Party& party(int row, int place) const { return parties_[party_of_[static_cast<size_t>(row) * top_k_ + place]]; }

  // Seats that a block of so many rows may take, the empty ones at the ends of parties included.
  static int64_t most_seats(int experts, int top_k, int64_t rows);

 private:
  const int top_k_;
  std::vector<Party> parties_;
  std::vector<int> seats_, party_of_;  // [rows][top_k]
  std::vector<int> counts_, parties_by_expert_;  // [experts]
};

}  // namespace octavo
