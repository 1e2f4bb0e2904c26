#include "speculation/suffix_automaton.h"

#include <algorithm>
#include <cmath>

#include "speculation/hashing.h"

namespace octavo {
namespace {

constexpr size_t kFirstSlots = 64;
constexpr double kDoubt = 2.5;

template <class T>
size_t bytes_of(const std::vector<T>& values) {
  return values.capacity() * sizeof(T);
}

// What is added to the number of places where a context of that length stood.
double doubt_at(int32_t length) { return kDoubt / (length * std::sqrt(static_cast<double>(length))); }

}  // namespace

SuffixAutomaton::SuffixAutomaton() : slots_(kFirstSlots, -1) { add_state(0, -1); }

void SuffixAutomaton::extend(const int32_t* token_ids, size_t count) {
  for (size_t i = 0; i < count; i++) append(token_ids[i]);
}

SuffixDraft SuffixAutomaton::draft(int max_tokens, double min_chance) const {
  return draft_from(shorter({last_, at(last_).length}), max_tokens, min_chance);
}

SuffixDraft SuffixAutomaton::draft_after(const int32_t* token_ids, size_t count, int max_tokens,
                                         double min_chance) const {
  Context context{0, 0};
  for (size_t i = 0; i < count; i++) {
    int32_t edge = edge_of(context.state, token_ids[i]);
    while (edge < 0 && context.state != 0) {
      context = shorter(context);
      edge = edge_of(context.state, token_ids[i]);
    }
    if (edge >= 0) context = {edges_[static_cast<size_t>(edge)].target, context.length + 1};
  }
  return draft_from(context, max_tokens, min_chance);
}

size_t SuffixAutomaton::num_bytes() const { return bytes_of(states_) + bytes_of(edges_) + bytes_of(slots_); }

void SuffixAutomaton::append(int32_t token) {
  const int32_t from = last_;
  last_ = add_state(at(from).length + 1, 0);
  link_up(last_, from, token);
  count_end(last_);
  if (token >= 0) note_follower(from, token);
}

// Leads to `state` from all suffixes of the text before that `token` never followed, and finds its link.
void SuffixAutomaton::link_up(int32_t state, int32_t from, int32_t token) {
  int32_t edge = -1;
  for (; from >= 0; from = at(from).link) {
    edge = edge_of(from, token);
    if (edge >= 0) break;
    add_edge(from, token, state);
  }
  if (from < 0) return;
  const int32_t target = edges_[static_cast<size_t>(edge)].target;
  at(state).link = at(target).length == at(from).length + 1 ? target : split(from, token, target);
}

// Parts the shorter contexts of `target`, which end at one more place from now on, from the longer ones.
int32_t SuffixAutomaton::split(int32_t from, int32_t token, int32_t target) {
  const int32_t part = add_state(at(from).length + 1, at(target).link);
  at(part).count = at(target).count;
  at(part).last_end = at(target).last_end;
  for (int32_t e = at(target).first_edge; e >= 0; e = edges_[static_cast<size_t>(e)].next) {
    const Edge copied = edges_[static_cast<size_t>(e)];
    add_edge(part, copied.token, copied.target);
    if (e == at(target).best_edge) at(part).best_edge = at(part).first_edge;
  }
  at(target).link = part;
  for (; from >= 0; from = at(from).link) {
    Edge& edge = edges_[static_cast<size_t>(edge_of(from, token))];
    if (edge.target != target) break;
    edge.target = part;
  }
  return part;
}

void SuffixAutomaton::count_end(int32_t state) {
  const int32_t end = at(state).length;
  for (int i = 0; i < kMaxCounted && state > 0; i++, state = at(state).link) {
    at(state).count++;
    at(state).last_end = end;
  }
}

// The last token came behind `state` and the shorter contexts that end there. No other count of what followed them has
// changed, so the best of each is kept by one comparison.
void SuffixAutomaton::note_follower(int32_t state, int32_t token) {
  for (int i = 0; i < kMaxCounted && state > 0; i++, state = at(state).link) {
    const int32_t edge = edge_of(state, token), best = at(state).best_edge;
    if (best < 0 || count_behind(edge) >= count_behind(best)) at(state).best_edge = edge;
  }
}

int32_t SuffixAutomaton::count_behind(int32_t edge) const { return at(edges_[static_cast<size_t>(edge)].target).count; }

int32_t SuffixAutomaton::add_state(int32_t length, int32_t link) {
  states_.push_back({length, link, 0, 0, -1, -1});
  return static_cast<int32_t>(states_.size()) - 1;
}

void SuffixAutomaton::add_edge(int32_t source, int32_t token, int32_t target) {
  if (2 * (edges_.size() + 1) > slots_.size()) grow();
  slots_[slot_of(source, token)] = static_cast<int32_t>(edges_.size());
  edges_.push_back({token, target, at(source).first_edge, source});
  at(source).first_edge = static_cast<int32_t>(edges_.size()) - 1;
}

// The slot of an edge, or the empty one where it belongs.
size_t SuffixAutomaton::slot_of(int32_t source, int32_t token) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = hash_with(static_cast<uint32_t>(source) * 0x9e3779b97f4a7c15ull, static_cast<uint32_t>(token)) & mask;
  for (; slots_[slot] >= 0; slot = (slot + 1) & mask) {
    const Edge& edge = edges_[static_cast<size_t>(slots_[slot])];
    if (edge.source == source && edge.token == token) break;
  }
  return slot;
}

int32_t SuffixAutomaton::edge_of(int32_t source, int32_t token) const { return slots_[slot_of(source, token)]; }

void SuffixAutomaton::grow() {
  slots_.assign(2 * slots_.size(), -1);
  for (size_t e = 0; e < edges_.size(); e++)
    slots_[slot_of(edges_[e].source, edges_[e].token)] = static_cast<int32_t>(e);
}

SuffixAutomaton::Context SuffixAutomaton::shorter(Context context) const {
  const int32_t link = at(context.state).link;
  return link < 0 ? Context{0, 0} : Context{link, at(link).length};
}

// The chance of the best token behind a context. The place at the end of the text has nothing behind it. Where not all
// ends of a context were counted, the count of what follows may be the larger one.
double SuffixAutomaton::chance_of(int32_t edge, Context context) const {
  const State& state = at(context.state);
  const int32_t total = state.count - (static_cast<size_t>(state.last_end) == size());
  return std::min(1.0, count_behind(edge) / (total + doubt_at(context.length)));
}

SuffixDraft SuffixAutomaton::draft_from(Context context, int max_tokens, double min_chance) const {
  SuffixDraft out{{}, {}, context.length};
  double product = 1;
  while (static_cast<int>(out.token_ids.size()) < max_tokens && context.state > 0) {
    const int32_t best = at(context.state).best_edge;
    if (best < 0) {  // the text ended there each time
      context = shorter(context);
      continue;
    }
    const double chance = chance_of(best, context);
    product *= chance;
    if (product < min_chance) break;
    const Edge& edge = edges_[static_cast<size_t>(best)];
    out.token_ids.push_back(edge.token);
    out.chances.push_back(chance);
    context = {edge.target, context.length + 1};
  }
  return out;
}

}  // namespace octavo
