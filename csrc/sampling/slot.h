// The sampling state of one request: its parameters, the tokens it has seen, its place in the noise.
#pragma once
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sampling/kernels.h"
#include "sampling/row.h"

namespace octavo {

// Everything a draw depends on. Neutral values change no bit.
struct SlotParams {
  bool greedy = true;
  double temperature = 1.0;
  int64_t top_k = 0;  // <= 0: all
  double top_p = 1.0, min_p = 0.0;
  float repetition_penalty = 1.0f, presence_penalty = 0.0f, frequency_penalty = 0.0f;
  uint64_t seed = 0;
  int min_tokens = 0;
  int num_logprobs = -1;  // -1: none asked
  std::vector<int> logprob_token_ids;  // listed in place of the most probable ones; empty: those
  std::vector<std::pair<int, float>> logit_bias;
  std::vector<int> allowed_token_ids;  // empty: all
  std::vector<std::vector<int>> bad_words;
  std::vector<int> stop_token_ids;  // masked until min_tokens

  // Entries of a list of logprobs beside the chosen token; -1: there is no list.
  int num_listed() const {
    return num_logprobs < 0 || logprob_token_ids.empty() ? num_logprobs : static_cast<int>(logprob_token_ids.size());
  }
  bool counts_tokens() const {
    return repetition_penalty != 1.0f || presence_penalty != 0.0f || frequency_penalty != 0.0f;
  }
};

class Slot {
 public:
  // `outputs` is not empty when a preempted request comes back: the state is then what it was.
  Slot(SlotParams params, const std::vector<int>& prompt, const std::vector<int>& outputs);

  const SlotParams& params() const { return params_; }
  uint32_t num_outputs() const { return num_outputs_; }
  void append(int token);
  // Whether a token ends the request.
  bool ends_with(int token) const;

  // True if `edit` would change something in this step.
  bool edits() const;
  // Allowed tokens, bias, bad words and min_tokens, penalties: in this order.
  void edit(const SamplingKernels& kernels, Row& row) const;

 private:
  void ban(Row& row) const;
  void penalize(Row& row) const;
  bool just_generated(const std::vector<int>& word) const;
  void see(int token, int times_in_output);

  SlotParams params_;
  uint32_t num_outputs_ = 0;
  std::vector<int> recent_;  // the last outputs, as many as the longest bad word can look back
  size_t lookback_ = 0;
  std::vector<std::pair<int, int>> seen_;  // (token, times in the output), in order of appearance
  std::unordered_map<int, size_t> seen_index_;
};

}  // namespace octavo
