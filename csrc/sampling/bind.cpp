#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/isa.h"
#include "bindings.h"
#include "sampling/noise.h"
#include "sampling/sampler.h"

namespace nb = nanobind;

namespace octavo {
namespace {

using LogitsArray = nb::ndarray<const float, nb::ndim<2>, nb::device::cpu>;
using IdsArray = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using MasksArray = nb::ndarray<const int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using RowsArray = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using LogitRowArray = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using OutArray = nb::ndarray<nb::numpy, T, nb::c_contig>;

template <class T>
OutArray<T> to_array(std::vector<T> values, std::initializer_list<size_t> shape) {
  auto* kept = new std::vector<T>(std::move(values));
  nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return OutArray<T>(kept->data(), shape, owner);
}

const SamplingKernels& kernels_named(const std::string& isa) {
  return kernels_for(resolve_isa(isa), sampling_kernels_portable(), sampling_kernels_avx2());
}

LogitRows rows_of(const Sampler& sampler, const LogitsArray& logits, size_t num_ids) {
  if (static_cast<int>(logits.shape(1)) != sampler.vocab_size())
    throw std::invalid_argument("logits have " + std::to_string(logits.shape(1)) +
                                " columns, the sampler's vocab_size is " + std::to_string(sampler.vocab_size()));
  if (logits.shape(0) != num_ids)
    throw std::invalid_argument("logits have " + std::to_string(logits.shape(0)) + " rows for " +
                                std::to_string(num_ids) + " ids");
  const bool is_contiguous = logits.shape(0) == 0 || logits.shape(1) == 1 || logits.stride(1) == 1;
  if (!is_contiguous) throw std::invalid_argument("each row of logits must be contiguous");
  return {logits.data(), logits.stride(0), static_cast<int>(logits.shape(0))};
}

// (token ids [rows, width], logprobs [rows, width], counts [rows], ranks [rows]); None if no row asked
nb::object to_tuple(LogprobColumns columns) {
  const size_t rows = columns.counts.size(), width = static_cast<size_t>(columns.width);
  if (width == 0) return nb::none();
  return nb::make_tuple(to_array(std::move(columns.token_ids), {rows, width}),
                        to_array(std::move(columns.logprobs), {rows, width}),
                        to_array(std::move(columns.counts), {rows}), to_array(std::move(columns.ranks), {rows}));
}

const uint32_t* words_of(const Sampler& sampler, const int32_t* words, size_t count) {
  if (static_cast<int>(count) != sampler.mask_words())
    throw std::invalid_argument("a mask of " + std::to_string(count) + " words; this vocabulary takes " +
                                std::to_string(sampler.mask_words()));
  return reinterpret_cast<const uint32_t*>(words);
}

TokenMasks masks_of(const Sampler& sampler, const std::optional<MasksArray>& masks,
                    const std::optional<IdsArray>& mask_rows, size_t num_rows) {
  if (masks.has_value() != mask_rows.has_value())
    throw std::invalid_argument("masks and mask_rows come together or not at all");
  if (!masks) return {};
  if (mask_rows->shape(0) != num_rows)
    throw std::invalid_argument("mask_rows has " + std::to_string(mask_rows->shape(0)) + " entries for " +
                                std::to_string(num_rows) + " rows");
  const int count = static_cast<int>(masks->shape(0));
  for (size_t r = 0; r < num_rows; r++)
    if (mask_rows->data()[r] < -1 || mask_rows->data()[r] >= count)
      throw std::invalid_argument("mask_rows names mask " + std::to_string(mask_rows->data()[r]) + " of " +
                                  std::to_string(count));
  return {words_of(sampler, masks->data(), masks->shape(1)), static_cast<int64_t>(masks->shape(1)), mask_rows->data()};
}

void require_ids(const char* name, const IdsArray& ids, size_t num_rows, int low, int high) {
  if (ids.shape(0) != num_rows)
    throw std::invalid_argument(std::string(name) + " has " + std::to_string(ids.shape(0)) + " entries for " +
                                std::to_string(num_rows) + " rows");
  for (size_t r = 0; r < num_rows; r++)
    if (ids.data()[r] < low || ids.data()[r] > high)
      throw std::invalid_argument(std::string(name) + " holds " + std::to_string(ids.data()[r]) + ", not within [" +
                                  std::to_string(low) + ", " + std::to_string(high) + "]");
}

void bind_replaced(const Sampler& sampler, const std::optional<RowsArray>& replaced,
                   const std::optional<IdsArray>& replaced_rows, size_t num_rows, CallBounds* bounds) {
  if (replaced.has_value() != replaced_rows.has_value())
    throw std::invalid_argument("replaced and replaced_rows come together or not at all");
  if (!replaced) return;
  if (static_cast<int>(replaced->shape(1)) != sampler.valid_vocab_size())
    throw std::invalid_argument("replaced has " + std::to_string(replaced->shape(1)) + " columns; there are " +
                                std::to_string(sampler.valid_vocab_size()) + " valid token ids");
  require_ids("replaced_rows", *replaced_rows, num_rows, -1, static_cast<int>(replaced->shape(0)) - 1);
  bounds->replaced = replaced->data();
  bounds->replaced_stride = static_cast<int64_t>(replaced->shape(1));
  bounds->replaced_rows = replaced_rows->data();
}

nb::tuple sample(Sampler& sampler, const LogitsArray& logits, const IdsArray& slots,
                 const std::optional<MasksArray>& masks, const std::optional<IdsArray>& mask_rows,
                 const std::optional<RowsArray>& replaced, const std::optional<IdsArray>& replaced_rows,
                 const std::optional<IdsArray>& forced, const std::optional<IdsArray>& drafts) {
  const size_t num_rows = slots.shape(0);
  const LogitRows rows = rows_of(sampler, logits, num_rows);
  CallBounds bounds{masks_of(sampler, masks, mask_rows, num_rows)};
  bind_replaced(sampler, replaced, replaced_rows, num_rows, &bounds);
  if (forced) {
    require_ids("forced", *forced, num_rows, -1, sampler.valid_vocab_size() - 1);
    bounds.forced = forced->data();
  }
  if (drafts) {
    require_ids("drafts", *drafts, num_rows, -1, sampler.valid_vocab_size() - 1);
    if (num_rows > 0 && drafts->data()[num_rows - 1] >= 0)
      throw std::invalid_argument("the last row names a draft that has no row");
    bounds.drafts = drafts->data();
  }
  std::optional<SampledColumns> sampled;
  {
    nb::gil_scoped_release release;
    sampled = sampler.sample(rows, slots.data(), bounds);
  }
  std::vector<std::pair<int, int>> failures;  // (row, status)
  const size_t count = sampled->statuses.size();
  for (size_t r = 0; r < count; r++)
    if (sampled->statuses[r] != RowStatus::kOk)
      failures.emplace_back(static_cast<int>(r), static_cast<int>(sampled->statuses[r]));
  return nb::make_tuple(to_array(std::move(sampled->tokens), {count}), failures,
                        to_tuple(std::move(sampled->logprobs)));
}

nb::object score(Sampler& sampler, const LogitsArray& logits, const IdsArray& targets, int num_logprobs) {
  const LogitRows rows = rows_of(sampler, logits, targets.shape(0));
  std::optional<LogprobColumns> scored;
  {
    nb::gil_scoped_release release;
    scored = sampler.score(rows, targets.data(), num_logprobs);
  }
  return to_tuple(std::move(*scored));
}

void require_row(const Sampler& sampler, const LogitRowArray& logits) {
  if (static_cast<int>(logits.shape(0)) != sampler.vocab_size())
    throw std::invalid_argument("a row of " + std::to_string(logits.shape(0)) +
                                " logits; the sampler's vocab_size is " + std::to_string(sampler.vocab_size()));
}

const uint32_t* mask_of(const Sampler& sampler, const std::optional<IdsArray>& mask) {
  return mask ? words_of(sampler, mask->data(), mask->shape(0)) : nullptr;
}

OutArray<float> adjust(Sampler& sampler, const LogitRowArray& logits, int slot, const std::optional<IdsArray>& mask) {
  require_row(sampler, logits);
  std::vector<float> adjusted = sampler.adjust(logits.data(), slot, mask_of(sampler, mask));
  const size_t count = adjusted.size();
  return to_array(std::move(adjusted), {count});
}

std::vector<int> candidates(Sampler& sampler, const LogitRowArray& logits, int slot,
                            const std::optional<IdsArray>& mask) {
  require_row(sampler, logits);
  return sampler.candidates(logits.data(), slot, mask_of(sampler, mask));
}

std::vector<uint32_t> philox(std::vector<uint32_t> counter, uint64_t key) {
  if (counter.size() != 4) throw std::invalid_argument("a Philox4x32 counter has four words");
  philox4x32(counter.data(), key);
  return counter;
}

// The exponential noise of token ids [0, num_tokens), through the kernels of one path.
OutArray<double> exponential_noise(uint64_t seed, uint32_t position, int num_tokens, const std::string& isa) {
  const SamplingKernels& kernels = kernels_named(isa);
  const int num_blocks = (num_tokens + kTokenBlock - 1) / kTokenBlock;
  std::vector<uint32_t> least(num_blocks), first(num_blocks);
  std::vector<double> noise;
  kernels.race({seed, position}, num_blocks, least.data(), first.data());
  for (int token = 0; token < num_tokens; token++) {
    uint32_t words[kTokenBlock];
    const int block = token / kTokenBlock, j = token % kTokenBlock;
    kernels.draw({seed, position}, block, 0, words);
    const double excess = first[block] == static_cast<uint32_t>(j) ? 0.0 : exponential(words[j]);
    noise.push_back(block_minimum(least[block]) + excess);
  }
  return to_array(std::move(noise), {static_cast<size_t>(num_tokens)});
}

// The mass of one row in units of 2^-44, through the kernels of one path and the threads of a pool.
uint64_t row_mass(ThreadPool& pool, const LogitRowArray& logits, float temperature, const std::string& isa) {
  const Passes passes(kernels_named(isa), &pool);
  const int size = static_cast<int>(logits.shape(0));
  Row row(size);
  if (!row.view(passes, logits.data(), size)) throw std::invalid_argument("the row holds a NaN");
  const Softmax softmax{row.max(), 1.0f / temperature};
  const float no_floor = -std::numeric_limits<float>::infinity();
  return passes.weigh(row.blocks(), row.maxima(), row.num_blocks(), softmax, no_floor, nullptr);
}

}  // namespace

void bind_sampling(nb::module_& m) {
  nb::class_<SlotParams>(m, "SlotParams", "Sampling parameters of one request, as the native sampler takes them.")
      .def(nb::init<>())
      .def_rw("greedy", &SlotParams::greedy)
      .def_rw("temperature", &SlotParams::temperature)
      .def_rw("top_k", &SlotParams::top_k)
      .def_rw("top_p", &SlotParams::top_p)
      .def_rw("min_p", &SlotParams::min_p)
      .def_rw("repetition_penalty", &SlotParams::repetition_penalty)
      .def_rw("presence_penalty", &SlotParams::presence_penalty)
      .def_rw("frequency_penalty", &SlotParams::frequency_penalty)
      .def_rw("seed", &SlotParams::seed)
      .def_rw("min_tokens", &SlotParams::min_tokens)
      .def_rw("num_logprobs", &SlotParams::num_logprobs)
      .def_rw("logprob_token_ids", &SlotParams::logprob_token_ids)
      .def_rw("logit_bias", &SlotParams::logit_bias)
      .def_rw("allowed_token_ids", &SlotParams::allowed_token_ids)
      .def_rw("bad_words", &SlotParams::bad_words)
      .def_rw("stop_token_ids", &SlotParams::stop_token_ids);

  nb::class_<Sampler>(m, "Sampler", "The native sampler; octavo.decoding.sampler wraps it.")
      .def(
          "__init__",
          [](Sampler* self, ThreadPool& pool, int vocab_size, int valid_vocab_size, const std::string& isa) {
            new (self) Sampler(pool, vocab_size, valid_vocab_size, kernels_named(isa));
          },
          nb::arg("pool"), nb::arg("vocab_size"), nb::arg("valid_vocab_size"), nb::arg("isa"), nb::keep_alive<1, 2>())
      .def("add", &Sampler::add, nb::arg("slot"), nb::arg("params"), nb::arg("prompt_token_ids"),
           nb::arg("output_token_ids"))
      .def("remove", &Sampler::remove, nb::arg("slot"))
      .def("sample", &sample, nb::arg("logits"), nb::arg("slots"), nb::arg("masks").none(),
           nb::arg("mask_rows").none(), nb::arg("replaced").none() = nb::none(),
           nb::arg("replaced_rows").none() = nb::none(), nb::arg("forced").none() = nb::none(),
           nb::arg("drafts").none() = nb::none())
      .def("score", &score, nb::arg("logits"), nb::arg("targets"), nb::arg("num_logprobs"))
      .def("adjust", &adjust, nb::arg("logits"), nb::arg("slot"), nb::arg("mask").none())
      .def("candidates", &candidates, nb::arg("logits"), nb::arg("slot"), nb::arg("mask").none());

  m.def("philox4x32", &philox, nb::arg("counter"), nb::arg("key"), "Philox4x32-10 of one counter.");
  m.def("exponential_noise", &exponential_noise, nb::arg("seed"), nb::arg("position"), nb::arg("num_tokens"),
        nb::arg("isa"), "Noise of token ids [0, num_tokens) at one output position.");
  m.def("row_mass", &row_mass, nb::arg("pool"), nb::arg("logits"), nb::arg("temperature"), nb::arg("isa"),
        "Sum of the weights of a row, in units of 2^-44 of the largest.");
}

}  // namespace octavo
