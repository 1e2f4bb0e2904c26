#include "experts/experts.h"

#include <algorithm>
#include <utility>

namespace octavo {
namespace {

// A chunk streams at least this much weight, or is one of so many per thread: as in linear_op.cpp, but more of them, as
// parties differ in size.
constexpr size_t kChunkBytes = 256 << 10;
constexpr int kChunksPerThread = 8, kMaxChunksPerThread = 16;
// What a tile column costs besides its rows, in rows: it has to come from memory.
constexpr int kStreamRows = 6;
// Meetings per chunk, at least, of stages that do little for each.
constexpr int kMeetingsPerChunk = 4;

bool any_int8(const std::vector<const PackedLinear*>& matrices) {
  return std::any_of(matrices.begin(), matrices.end(), [](auto* m) { return m->int8_activations(); });
}

bool any_float(const std::vector<const PackedLinear*>& matrices) {
  return std::any_of(matrices.begin(), matrices.end(), [](auto* m) { return !m->int8_activations(); });
}

void quantize(const LinearKernels& linear, const float* row, const ExpertsMemory::Rows& to,
              const ExpertSeats::Party& party, int seat) {
  const int r = seat - party.begin;
  linear.quantize_rows(row, 0, r, r + 1, party.rows, to.width, to.panels_from(party.begin));
}

class SeatOp : public Op {
 public:
  SeatOp(ExpertsMemory* memory, const Buffer* routes, ExpertLoad* load)
      : memory_(memory), routes_(routes), load_(load) {}
  int chunks(const Step&, RowRange rows) const override { return rows.count() > 0; }
  void run(const Step&, RowRange rows, int, int) override {
    memory_->seats.make(*routes_, rows);
    for (const auto& party : memory_->seats.parties()) {
      load_[party.expert].fetch_add(party.rows, std::memory_order_relaxed);
    }
  }

 private:
  ExpertsMemory* memory_;
  const Buffer* routes_;
  ExpertLoad* load_;
};

// A stage that does something for each meeting of a row and an expert: f(row, seat, party).
template <class F>
class MeetingsOp : public Op {
 public:
  MeetingsOp(ExpertsMemory* memory, int threads, F f) : memory_(memory), threads_(threads), f_(std::move(f)) {}

  int chunks(const Step&, RowRange rows) const override {
    const int size = per_chunk(rows);
    return (meetings(rows) + size - 1) / size;
  }
  void run(const Step&, RowRange rows, int chunk, int) override {
    const int size = per_chunk(rows), top_k = memory_->kind().top_k;
    const int end = std::min((chunk + 1) * size, meetings(rows));
    for (int i = chunk * size; i < end; i++) {
      const int row = i / top_k, place = i % top_k;
      f_(Row{rows.begin + row, rows}, memory_->seats.seat(row, place), memory_->seats.party(row, place));
    }
  }

 private:
  int meetings(RowRange rows) const { return rows.count() * memory_->kind().top_k; }
  int per_chunk(RowRange rows) const { return std::max(kMeetingsPerChunk, meetings(rows) / (4 * threads_)); }

  ExpertsMemory* memory_;
  const int threads_;
  F f_;
};

template <class F>
std::unique_ptr<Op> each_meeting(ExpertsMemory* memory, int threads, F f) {
  return std::make_unique<MeetingsOp<F>>(memory, threads, std::move(f));
}

// Matrices over one input, each expert's applied to its own party. The chunks are cut by cost over the tile columns of
// all parties: their number follows from the number of rows, what they hold from the routes.
class ExpertLinearOp : public Op {
 public:
  struct Segment {
    std::vector<const PackedLinear*> weights;  // [experts]
    const ExpertsMemory::Rows* out;
  };

  ExpertLinearOp(const LinearKernels& kernels, ExpertsMemory* memory, const ExpertsMemory::Rows* x,
                 std::vector<Segment> segments, int threads)
      : kernels_(kernels), memory_(memory), x_(x), segments_(std::move(segments)), threads_(threads) {}

  int chunks(const Step&, RowRange rows) const override {
    const ExpertsKind& kind = memory_->kind();
    const int64_t parties = std::min<int64_t>(kind.experts, static_cast<int64_t>(rows.count()) * kind.top_k);
    const int64_t tiles = parties * tiles_of(0), by_size = parties * bytes_of(0) / kChunkBytes;
    const int64_t least = std::min<int64_t>(tiles, kChunksPerThread * threads_);
    return static_cast<int>(std::clamp(std::min<int64_t>(by_size, kMaxChunksPerThread * threads_), least, tiles));
  }

  void run(const Step& step, RowRange rows, int chunk, int) override {
    const int count = chunks(step, rows);
    int64_t total = 0;
    for (const auto& party : memory_->seats.parties()) total += cost_of(party);
    int64_t begin = total * chunk / count, end = total * (chunk + 1) / count;
    for (const auto& party : memory_->seats.parties()) {
      const int64_t cost = cost_of(party), tile = kStreamRows + party.rows;
      const auto tile_at = [&](int64_t place) { return static_cast<int>(std::clamp<int64_t>(place, 0, cost) / tile); };
      if (end <= 0) return;
      if (begin < cost) run_tiles(party, tile_at(begin), tile_at(end));
      begin -= cost;
      end -= cost;
    }
  }

 private:
  int64_t cost_of(const ExpertSeats::Party& party) const {
    return static_cast<int64_t>(tiles_of(party.expert)) * (kStreamRows + party.rows);
  }
  int tiles_of(int expert) const {
    int tiles = 0;
    for (const auto& s : segments_) tiles += s.weights[expert]->num_tiles;
    return tiles;
  }
  int64_t bytes_of(int expert) const {
    int64_t bytes = 0;
    for (const auto& s : segments_) bytes += s.weights[expert]->num_tiles * s.weights[expert]->tile_bytes;
    return bytes;
  }

  // Tile columns [begin, end) of all segments of an expert, one after the other.
  void run_tiles(const ExpertSeats::Party& party, int begin, int end) const {
    const Activations input = x_->input(party);
    for (const auto& s : segments_) {
      const PackedLinear& weight = *s.weights[party.expert];
      const int first = std::clamp(begin, 0, weight.num_tiles), last = std::clamp(end, 0, weight.num_tiles);
      if (first < last) {
        kernels_.run(weight, input, nullptr, false, s.out->row(party.begin), s.out->stride, first, last);
      }
      begin -= weight.num_tiles;
      end -= weight.num_tiles;
    }
  }

  const LinearKernels& kernels_;
  ExpertsMemory* memory_;
  const ExpertsMemory::Rows* x_;
  const std::vector<Segment> segments_;
  const int threads_;
};

// out = the weighted sum of what the experts of a row gave. Each product and each sum is rounded once.
class CombineOp : public Op {
 public:
  CombineOp(const RowKernels& kernels, ExpertsMemory* memory, const Buffer* routes, const Buffer* out, int threads)
      : kernels_(kernels), memory_(memory), routes_(routes), out_(out), threads_(threads) {}

  int chunks(const Step&, RowRange rows) const override {
    const int size = rows_per_chunk(rows);
    return (rows.count() + size - 1) / size;
  }
  void run(const Step&, RowRange rows, int chunk, int) override {
    const int size = rows_per_chunk(rows), end = std::min((chunk + 1) * size, rows.count());
    for (int row = chunk * size; row < end; row++) combine(row, {rows.begin + row, rows});
  }

 private:
  int rows_per_chunk(RowRange rows) const { return std::max(kPanelRows, rows.count() / (4 * threads_)); }

  void combine(int row, Row place_of_row) const {
    const int width = out_->width, top_k = memory_->kind().top_k;
    const float* weights = routes_->row(place_of_row) + top_k;
    float* out = out_->row(place_of_row);
    for (int place = 0; place < top_k; place++) {
      float* y = memory_->y.row(memory_->seats.seat(row, place));
      kernels_.scale(y, weights[place], width, place == 0 ? out : y);
      if (place > 0) kernels_.add(out, y, width, out);
    }
  }

  const RowKernels& kernels_;
  ExpertsMemory* memory_;
  const Buffer *routes_, *out_;
  const int threads_;
};

}  // namespace

ExpertsMemory::ExpertsMemory(const ExpertsKind& kind, int max_rows)
    : seats(kind.experts, kind.top_k, max_rows),
      x{kind.width, spread_stride(kind.width)},
      gate{kind.inner, spread_stride(kind.inner)},
      up{kind.inner, spread_stride(kind.inner)},
      y{kind.width, spread_stride(kind.width)},
      kind_(kind),
      most_seats_(ExpertSeats::most_seats(kind.experts, kind.top_k, max_rows)) {}

size_t ExpertsMemory::bytes() const {
  size_t total = 0;
  for (const Rows* rows : {&x, &gate, &up, &y}) total += Arena::padded(most_seats_ * rows->stride * sizeof(float));
  for (const Rows* rows : {&x, &gate}) {
    total += Arena::padded(most_seats_ / kPanelRows * (rows->width / kGroup) * sizeof(ActGroup));
  }
  return total;
}

void ExpertsMemory::take(Arena& arena) {
  for (Rows* rows : {&x, &gate, &up, &y}) rows->floats = arena.take_array<float>(most_seats_ * rows->stride);
  for (Rows* rows : {&x, &gate}) {
    rows->panels = arena.take_array<ActGroup>(most_seats_ / kPanelRows * (rows->width / kGroup));
  }
}

std::vector<std::unique_ptr<Op>> make_experts(const LinearKernels& linear, const RowKernels& rows, ExpertsMemory* memory,
                                              ExpertMatrices matrices, Function activation, const Buffer* x,
                                              const Buffer* routes, const Buffer* out, ExpertLoad* load, int threads) {
  const bool x_int8 = any_int8(matrices.gate) || any_int8(matrices.up);
  const bool x_float = any_float(matrices.gate) || any_float(matrices.up);
  const bool inner_int8 = any_int8(matrices.down);
  const auto gather = [=, &linear](Row row, int seat, const ExpertSeats::Party& party) {
    if (x_float) std::copy_n(x->row(row), x->width, memory->x.row(seat));
    if (x_int8) quantize(linear, x->row(row), memory->x, party, seat);
  };
  const auto activate = [=, &linear, &rows](Row, int seat, const ExpertSeats::Party& party) {
    float* inner = memory->gate.row(seat);
    rows.gate(activation, inner, memory->up.row(seat), memory->gate.width, inner);
    if (inner_int8) quantize(linear, inner, memory->gate, party, seat);
  };
  using Segments = std::vector<ExpertLinearOp::Segment>;
  std::vector<std::unique_ptr<Op>> stages;
  stages.push_back(std::make_unique<SeatOp>(memory, routes, load));
  stages.push_back(each_meeting(memory, threads, gather));
  stages.push_back(std::make_unique<ExpertLinearOp>(
      linear, memory, &memory->x, Segments{{std::move(matrices.gate), &memory->gate}, {std::move(matrices.up), &memory->up}},
      threads));
  stages.push_back(each_meeting(memory, threads, activate));
  stages.push_back(std::make_unique<ExpertLinearOp>(linear, memory, &memory->gate,
                                                    Segments{{std::move(matrices.down), &memory->y}}, threads));
  stages.push_back(std::make_unique<CombineOp>(rows, memory, routes, out, threads));
  return stages;
}

}  // namespace octavo
