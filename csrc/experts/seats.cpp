#include "experts/seats.h"

#include <algorithm>

namespace octavo {

ExpertSeats::ExpertSeats(int experts, int top_k, int max_rows)
    : top_k_(top_k),
      seats_(static_cast<size_t>(max_rows) * top_k),
      party_of_(seats_.size()),
      counts_(experts),
      parties_by_expert_(experts) {
  parties_.reserve(experts);
}

int64_t ExpertSeats::most_seats(int experts, int top_k, int64_t rows) {
  const int64_t meetings = rows * top_k, parties = std::min<int64_t>(experts, meetings);
  return (meetings + parties * (kRowsTogether - 1) + kRowsTogether - 1) / kRowsTogether * kRowsTogether;
}

void ExpertSeats::make(const Buffer& routes, RowRange block) {
  std::fill(counts_.begin(), counts_.end(), 0);
  parties_.clear();
  size_t meeting = 0;
  for (int r = block.begin; r < block.end; r++) {
    const float* ids = routes.row({r, block});
    for (int place = 0; place < top_k_; place++, meeting++) {
      const int expert = static_cast<int>(ids[place]);
      party_of_[meeting] = expert;
      seats_[meeting] = counts_[expert]++;
    }
  }
  int next = 0;
  for (int expert = 0; expert < static_cast<int>(counts_.size()); expert++) {
    if (counts_[expert] == 0) continue;
    parties_by_expert_[expert] = static_cast<int>(parties_.size());
    parties_.push_back({expert, next, counts_[expert]});
    next += (counts_[expert] + kRowsTogether - 1) / kRowsTogether * kRowsTogether;
  }
  for (size_t i = 0; i < meeting; i++) {
    party_of_[i] = parties_by_expert_[party_of_[i]];
    seats_[i] += parties_[party_of_[i]].begin;
  }
}

}  // namespace octavo
