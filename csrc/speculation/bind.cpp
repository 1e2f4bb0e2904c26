// `octavo._native.NgramIndex` and `SuffixAutomaton`: what proposers look drafts up in.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "bindings.h"
#include "speculation/ngram_index.h"
#include "speculation/suffix_automaton.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace octavo {
namespace {

using Ids = std::vector<int32_t>;

// Fewer tokens than this are taken in sooner than Python's lock is handed over and back.
constexpr size_t kManyTokens = 1024;

template <class Index>
void extend(Index& index, const Ids& token_ids) {
  if (token_ids.size() < kManyTokens) return index.extend(token_ids.data(), token_ids.size());
  nb::gil_scoped_release unlocked;
  index.extend(token_ids.data(), token_ids.size());
}

void require_positive(int max_tokens) {
  if (max_tokens < 1) throw std::invalid_argument("max_tokens=" + std::to_string(max_tokens) + " must be at least 1");
}

nb::tuple ngram_draft(const NgramIndex& index, int max_tokens) {
  require_positive(max_tokens);
  const NgramIndex::Match match = index.longest_match();
  return nb::make_tuple(index.continuation(match, max_tokens), match.length);
}

nb::tuple to_tuple(const SuffixDraft& draft) { return nb::make_tuple(draft.token_ids, draft.chances, draft.match); }

nb::tuple suffix_draft(const SuffixAutomaton& automaton, int max_tokens, double min_chance) {
  require_positive(max_tokens);
  return to_tuple(automaton.draft(max_tokens, min_chance));
}

nb::tuple suffix_draft_after(const SuffixAutomaton& automaton, const Ids& tail, int max_tokens, double min_chance) {
  require_positive(max_tokens);
  return to_tuple(automaton.draft_after(tail.data(), tail.size(), max_tokens, min_chance));
}

}  // namespace

void bind_speculation(nb::module_& m) {
  nb::class_<NgramIndex>(m, "NgramIndex", "One growing text, and where its last tokens stood before.")
      .def(nb::init<int, int>(), "min_n"_a, "max_n"_a)
      .def("extend", &extend<NgramIndex>, "token_ids"_a)
      .def("draft", &ngram_draft, "max_tokens"_a)
      .def("__len__", &NgramIndex::size)
      .def_prop_ro("num_bytes", &NgramIndex::num_bytes);
  nb::class_<SuffixAutomaton>(m, "SuffixAutomaton", "All contexts of a growing text, and what followed them how often.")
      .def(nb::init<>())
      .def("extend", &extend<SuffixAutomaton>, "token_ids"_a)
      .def("draft", &suffix_draft, "max_tokens"_a, "min_chance"_a)
      .def("draft_after", &suffix_draft_after, "tail"_a, "max_tokens"_a, "min_chance"_a)
      .def("__len__", &SuffixAutomaton::size)
      .def_prop_ro("num_bytes", &SuffixAutomaton::num_bytes);
}

}  // namespace octavo
