// A mixture of experts as stages of a section: seat the rows, gather what they hold, gate and up, activation, down, and
// the weighted sum. See src/octavo/model/program.py (Experts) for what is computed.
//
// Exactness: an expert's linears run by the kernels of all linears, for which a row's bits do not depend on how many rows
// there are; the sum of a row is formed in the order of its route. So who else is routed where changes nothing.
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "base/memory.h"
#include "experts/seats.h"
#include "linear/linear.h"
#include "ops/ops.h"

namespace octavo {

// Rows that are run together: as many as it takes to make use of each expert's weights, and no more memory.
constexpr int kExpertBlockRows = 512;

// Layers that can take turns in one memory.
struct ExpertsKind {
  int experts, top_k, width, inner;
  bool operator==(const ExpertsKind& o) const {
    return experts == o.experts && top_k == o.top_k && width == o.width && inner == o.inner;
  }
};

// What one layer at a time has in its seats.
class ExpertsMemory {
 public:
  ExpertsMemory(const ExpertsKind& kind, int max_rows);
  const ExpertsKind& kind() const { return kind_; }
  // Takes its part of an arena that was made for `bytes`.
  size_t bytes() const;
  void take(Arena& arena);

  // Rows of floats, and their int8 form.
  struct Rows {
    int width, stride;
    float* floats = nullptr;
    ActGroup* panels = nullptr;

    float* row(int seat) const { return floats + static_cast<int64_t>(seat) * stride; }
    // Panels of the party whose first seat this is.
    ActGroup* panels_from(int seat) const {
      return panels + static_cast<int64_t>(seat / kPanelRows) * (width / kGroup);
    }
    Activations input(const ExpertSeats::Party& party) const {
      return {panels ? panels_from(party.begin) : nullptr, row(party.begin), stride, party.rows};
    }
  };

  ExpertSeats seats;
  Rows x, gate, up, y;

 private:
  const ExpertsKind kind_;
  const int64_t most_seats_;
};

// How many rows an expert has met. Written by one thread at a time, read by any.
using ExpertLoad = std::atomic<int64_t>;

// The matrices of a layer, one of each per expert.
struct ExpertMatrices {
  std::vector<const PackedLinear*> gate, up, down;
};

// The stages of a layer, in their order. `load` [experts] counts the rows that each expert has met.
std::vector<std::unique_ptr<Op>> make_experts(const LinearKernels& linear, const RowKernels& rows, ExpertsMemory* memory,
                                              ExpertMatrices matrices, Function activation, const Buffer* x,
                                              const Buffer* routes, const Buffer* out, ExpertLoad* load, int threads);

}  // namespace octavo
