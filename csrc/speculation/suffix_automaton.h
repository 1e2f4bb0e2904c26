// All contexts of a growing text, with how often each token followed them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace octavo {

struct SuffixDraft {
  std::vector<int32_t> token_ids;
  std::vector<double> chances;  // of each to be right, if all before it are
  int match;        // length of the context that the first one was guessed from; 0: none stood before
};

// A suffix automaton, built online (Blumer et al., 1985). A state is a class of contexts that end at the same places;
// `count` says at how many, so the tokens behind a context can be weighed against each other. The link of the state of
// the whole text is the longest context at its end that stood before: nothing needs to be searched for.
//
// Drafts follow the most frequent token of the longest context (of equals the most recent), and take it into the context.
// Its chance is count / (total + 2.5 / length^1.5 of the context): a context of one token that was seen once says little
// (2/7), one of eight tokens much (9/10). They end where the product of the chances falls below `min_chance`; the use of
// counts for that is from SuffixDecoding (Oliaro et al., 2024), the estimate is our own, from how often such guesses were
// right in benchmarks/draft_acceptance.py.
//
// A token costs amortised O(1), a drafted one O(1): of the contexts that end at a token, only the longest kMaxCounted are
// counted. In text that is not a loop of few tokens there are fewer, and counts are exact.
//
// Tokens below 0 part texts from each other: they are counted as what follows a context, and never drafted.
class SuffixAutomaton {
 public:
  static constexpr int kMaxCounted = 64;

  SuffixAutomaton();

  void extend(const int32_t* token_ids, size_t count);

  // What may come behind the text.
  SuffixDraft draft(int max_tokens, double min_chance) const;

  // What may come behind another text, of which only the end is looked at; costs O(count).
  SuffixDraft draft_after(const int32_t* token_ids, size_t count, int max_tokens, double min_chance) const;

  size_t size() const { return static_cast<size_t>(states_[static_cast<size_t>(last_)].length); }
  size_t num_bytes() const;

 private:
  struct State {
    int32_t length;      // of its longest context
    int32_t link;        // the state of the longest context at the end of these that ends elsewhere, too; -1: the root's
    int32_t count;       // places where its contexts end
    int32_t last_end;    // the last of them
    int32_t first_edge;  // -1: none
    int32_t best_edge;   // the token that followed most often, of equals the last one to do so; -1: none
  };
  struct Edge {
    int32_t token;
    int32_t target;
    int32_t next;  // of the same state; -1: none
    int32_t source;
  };
  struct Context {
    int32_t state;
    int32_t length;
  };

  void append(int32_t token);
  void link_up(int32_t state, int32_t from, int32_t token);
  int32_t split(int32_t from, int32_t token, int32_t target);
  void count_end(int32_t state);
  void note_follower(int32_t state, int32_t token);
  int32_t add_state(int32_t length, int32_t link);
  void add_edge(int32_t source, int32_t token, int32_t target);
  size_t slot_of(int32_t source, int32_t token) const;
  int32_t edge_of(int32_t source, int32_t token) const;
  void grow();
  Context shorter(Context context) const;
  int32_t count_behind(int32_t edge) const;
  double chance_of(int32_t edge, Context context) const;
  SuffixDraft draft_from(Context context, int max_tokens, double min_chance) const;

  State& at(int32_t state) { return states_[static_cast<size_t>(state)]; }
  const State& at(int32_t state) const { return states_[static_cast<size_t>(state)]; }

  std::vector<State> states_;
  std::vector<Edge> edges_;
  std::vector<int32_t> slots_;  // (source, token) -> edge; open addressing, a power of two, at most half full; -1 is empty
  int32_t last_ = 0;            // the state of the whole text
};

}  // namespace octavo
