// `octavo._native.SlotTable`: the arrays of the persistent batch, and what a step needs of them.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "batch/assemble.h"
#include "bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace octavo {
namespace {

template <size_t N>
using Ints = nb::ndarray<int32_t, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
using Ids = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using OutArray = nb::ndarray<nb::numpy, int32_t, nb::c_contig>;

OutArray to_array(std::vector<int32_t> values, std::initializer_list<size_t> shape) {
  auto* kept = new std::vector<int32_t>(std::move(values));
  nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<int32_t>*>(p); });
  return OutArray(kept->data(), shape, owner);
}

OutArray to_array(std::vector<int32_t> values) {
  const size_t count = values.size();
  return to_array(std::move(values), {count});
}

// The table, and the arrays that it points into.
class PySlotTable {
 public:
  PySlotTable(Ints<2> tokens, Ints<1> num_tokens, Ints<3> block_tables, int block_size)
      : tokens_(tokens), num_tokens_(num_tokens), block_tables_(block_tables), block_size_(block_size) {
    if (num_tokens.shape(0) != tokens.shape(0) || block_tables.shape(1) != tokens.shape(0))
      throw std::invalid_argument("tokens, num_tokens and block_tables differ in their number of slots");
    table_ = {static_cast<int>(tokens.shape(0)),       static_cast<int64_t>(tokens.shape(1)),
              static_cast<int>(block_tables.shape(0)), static_cast<int64_t>(block_tables.shape(2)),
              tokens.data(),                           num_tokens.data(),
              block_tables.data()};
  }

  nb::tuple assemble(std::vector<int> slots, std::vector<int> scheduled, std::vector<int> computed,
                     std::optional<std::vector<std::vector<int>>> drafts) const {
    PlanColumns plan{std::move(slots), std::move(scheduled), std::move(computed)};
    plan.has_drafts = drafts.has_value();
    if (drafts) plan.drafts = std::move(*drafts);
    StepArrays a = octavo::assemble(table_, plan, block_size_);
    const auto groups = static_cast<size_t>(table_.groups), tokens = a.token_ids.size(), seqs = a.context_lens.size();
    const auto width = static_cast<size_t>(a.table_width);
    return nb::make_tuple(to_array(std::move(a.token_ids)), to_array(std::move(a.positions)),
                          to_array(std::move(a.seq_starts)), to_array(std::move(a.context_lens)),
                          to_array(std::move(a.block_tables), {groups, seqs, width}),
                          to_array(std::move(a.slot_mapping), {groups, tokens}), to_array(std::move(a.logit_rows)),
                          to_array(std::move(a.sampling)), to_array(std::move(a.sampling_slots)),
                          to_array(std::move(a.drafts)));
  }

  void append(Ids slots, Ids token_ids) {
    if (slots.size() != token_ids.size()) throw std::invalid_argument("slots and token_ids differ in length");
    append_tokens(table_, slots.data(), token_ids.data(), static_cast<int>(slots.size()));
  }

 private:
  Ints<2> tokens_;
  Ints<1> num_tokens_;
  Ints<3> block_tables_;
  int block_size_;
  SlotTable table_;
};

}  // namespace

void bind_batch(nb::module_& m) {
  nb::class_<PySlotTable>(m, "SlotTable", "Arrays with a row per slot. octavo.execution.batch owns and fills them.")
      .def(nb::init<Ints<2>, Ints<1>, Ints<3>, int>(), "tokens"_a, "num_tokens"_a, "block_tables"_a, "block_size"_a)
      .def("assemble", &PySlotTable::assemble, "slots"_a, "scheduled"_a, "computed"_a,
           "drafts"_a.none() = nb::none())
      .def("append", &PySlotTable::append, "slots"_a, "token_ids"_a);
}

}  // namespace octavo
