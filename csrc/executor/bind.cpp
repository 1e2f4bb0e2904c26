#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "bindings.h"
#include "executor/executor.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace octavo {
namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using WritableBytes = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <size_t N>
using Ints = nb::ndarray<const int32_t, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
using Rows = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using View = nb::ndarray<nb::numpy, float, nb::ndim<2>>;
using Times = nb::ndarray<nb::numpy, int64_t, nb::ndim<2>>;

int size_of(size_t size) {
  return static_cast<int>(size);
}

void require_size(const char* array, size_t size, size_t expected) {
  if (size == expected) return;
  throw std::invalid_argument(std::string(array) + " has " + std::to_string(size) + " entries, expected " +
                              std::to_string(expected));
}

Function activation_function(const std::string& name) {
  static const std::map<std::string, Function> functions{{"silu", Function::Silu},
                                                         {"gelu_tanh", Function::GeluTanh},
                                                         {"gelu", Function::Gelu},
                                                         {"relu", Function::Relu}};
  const auto found = functions.find(name);
  if (found == functions.end()) throw std::invalid_argument("activation '" + name + "': no native kernel");
  return found->second;
}

Routing routing_named(const std::string& name) {
  if (name == "share_of_all") return Routing::ShareOfAll;
  if (name == "share_of_chosen") return Routing::ShareOfChosen;
  throw std::invalid_argument("routing '" + name + "': no native kernel");
}

// The executor, and the Python arrays that it reads until the next step (tokens).
class PyExecutor {
 public:
  using Segment = std::tuple<int, std::optional<int>, int, bool>;

  PyExecutor(ThreadPool& pool, std::shared_ptr<KvMemory> memory, const std::string& isa, int max_tokens, int max_rows,
             int max_seqs, int max_positions, int vocab_size)
      : executor_(pool, resolve_isa(isa),
                  {max_tokens, max_rows, max_seqs, max_positions, vocab_size, memory->num_groups(),
                   memory->shape().num_blocks, memory->shape().block_size},
                  memory) {}

  Executor& native() { return executor_; }

  int add_matrix(int format, int n, int k) {
    return executor_.weights().add_matrix(static_cast<Format>(format), n, k);
  }

  using Source = std::tuple<int, Bytes, std::optional<Ints<1>>, bool>;

  void pack(const std::vector<Source>& sources, std::optional<WritableBytes> out) {
    WeightStore& weights = executor_.weights();
    std::vector<MatrixSource> plain;
    for (const auto& [matrix, raw, row_order, mapped] : sources) {
      const PackedLinear& shape = weights.matrix(matrix);
      require_size("raw", raw.size(), linear_file_bytes(shape.format, shape.n, shape.k));
      if (row_order) require_order(*row_order, shape.n);
      plain.push_back({matrix, raw.data(), row_order ? row_order->data() : nullptr, mapped});
    }
    nb::gil_scoped_release release;
    weights.pack(executor_.pool(), plain, out ? out->data() : nullptr, out ? out->size() : 0);
  }

  int borrow_matrix(PyExecutor& owner, int matrix) {
    return executor_.weights().borrow_matrix(owner.executor_.weights().matrix(matrix));
  }

  void linear(int x, std::optional<int> panels, const std::vector<Segment>& segments) {
    std::vector<Executor::Segment> plain;
    for (const auto& [matrix, bias, out, add] : segments) plain.push_back({matrix, bias.value_or(-1), out, add});
    executor_.linear(x, panels.value_or(-1), plain);
  }

  using Expert = std::tuple<int, int, int>;

  void experts(int x, int routes, int out, const std::string& activation, const std::vector<Expert>& experts) {
    std::vector<Executor::ExpertIndices> plain;
    for (const auto& [gate, up, down] : experts) plain.push_back({gate, up, down});
    executor_.experts(x, routes, out, activation_function(activation), plain);
  }

  void fill(int buffer, Rows rows) {
    require_size("rows, second dimension,", rows.shape(1), executor_.buffer(buffer).width);
    executor_.fill(buffer, rows.data(), size_of(rows.shape(0)));
  }

  using Copies = std::vector<std::tuple<int, int, int>>;

  void run(Ints<1> token_ids, Ints<1> positions, Ints<1> seq_starts, Ints<1> context_lens, Ints<3> block_tables,
           Ints<2> slot_mapping, Ints<1> logit_rows, const Copies& copies) {
    const Step step = bind_step(token_ids, positions, seq_starts, context_lens, block_tables, slot_mapping, logit_rows);
    const std::vector<KvCopy> plain = plain_copies(copies);
    nb::gil_scoped_release release;
    executor_.run(step, plain);
  }

  // [n, 6]: section, stage, rows, begin, end, busy.
  Times take_times() {
    constexpr size_t kColumns = 6;
    const std::vector<Executor::StageTime> times = executor_.take_times();
    auto* out = new int64_t[times.size() * kColumns];
    nb::capsule owner(out, [](void* p) noexcept { delete[] static_cast<int64_t*>(p); });
    int64_t* row = out;
    for (const auto& t : times) {
      row = std::copy_n(std::array<int64_t, kColumns>{t.section, t.stage, t.rows, t.begin_ns, t.end_ns, t.busy_ns}.data(),
                        kColumns, row);
    }
    return Times(out, {times.size(), kColumns}, owner);
  }

  void run_rows(Ints<1> logit_rows, std::optional<std::tuple<int, int>> last) {
    const auto place = last ? Executor::StagePlace{std::get<0>(*last), std::get<1>(*last)} : Executor::kToTheEnd;
    nb::gil_scoped_release release;
    executor_.run_rows(logit_rows.data(), size_of(logit_rows.size()), place);
  }

 private:
  Step bind_step(const Ints<1>& token_ids, const Ints<1>& positions, const Ints<1>& seq_starts,
                 const Ints<1>& context_lens, const Ints<3>& block_tables, const Ints<2>& slot_mapping,
                 const Ints<1>& logit_rows) {
    Step step;
    step.tokens = size_of(token_ids.size());
    step.seqs = size_of(context_lens.size());
    step.rows = size_of(logit_rows.size());
    step.groups = size_of(block_tables.shape(0));
    step.max_blocks = size_of(block_tables.shape(2));
    require_size("positions", positions.size(), token_ids.size());
    require_size("seq_starts", seq_starts.size(), context_lens.size() + 1);
    require_size("block_tables, second dimension,", block_tables.shape(1), context_lens.size());
    require_size("slot_mapping, first dimension,", slot_mapping.shape(0), block_tables.shape(0));
    require_size("slot_mapping, second dimension,", slot_mapping.shape(1), token_ids.size());
    step.token_ids = token_ids.data();
    step.positions = positions.data();
    step.seq_starts = seq_starts.data();
    step.context_lens = context_lens.data();
    step.block_tables = block_tables.data();
    step.slot_mapping = slot_mapping.data();
    step.logit_rows = logit_rows.data();
    // `run_rows` reads them again, so they live as long as the step.
    step_arrays_ = nb::make_tuple(token_ids, positions, seq_starts, context_lens, block_tables, slot_mapping);
    return step;
  }

  static std::vector<KvCopy> plain_copies(const Copies& copies) {
    std::vector<KvCopy> out;
    for (const auto& [group, source, target] : copies) out.push_back({group, source, target});
    return out;
  }

  static void require_order(const Ints<1>& order, int n) {
    require_size("row_order", order.size(), n);
    for (int i = 0; i < n; i++) {
      if (order.data()[i] < 0 || order.data()[i] >= n) {
        throw std::invalid_argument("row_order[" + std::to_string(i) + "] = " + std::to_string(order.data()[i]) +
                                    ": no such row");
      }
    }
  }

  Executor executor_;
  nb::object step_arrays_;
};

using Layer = std::tuple<int, int, int, int, std::optional<int>>;

std::shared_ptr<KvMemory> kv_memory(int num_blocks, int block_size, int layers_per_block, const std::string& kv_dtype,
                                    const std::vector<Layer>& layers) {
  std::vector<KvLayerShape> shapes;
  for (const auto& [group, place, kv_heads, head_dim, window] : layers) {
    shapes.push_back({group, place, kv_heads, head_dim, window.value_or(CacheLayer::kNoWindow)});
  }
  const KvShape shape{num_blocks, block_size, layers_per_block, number_type("kv_dtype", kv_dtype)};
  return std::make_shared<KvMemory>(shape, shapes);
}

void read_block(const KvMemory& memory, int group, int block, WritableBytes out) {
  require_size("out", out.size(), memory.group_block_bytes(group));
  nb::gil_scoped_release release;
  memory.read_block(group, block, out.data());
}

void write_block(KvMemory& memory, int group, int block, Bytes data) {
  require_size("data", data.size(), memory.group_block_bytes(group));
  nb::gil_scoped_release release;
  memory.write_block(group, block, data.data());
}

// The first rows of a buffer, as many as the last step had: a view, overwritten by the next step.
View view(nb::handle_t<PyExecutor> self, int buffer) {
  Executor& executor = nb::cast<PyExecutor&>(self).native();
  const Buffer& b = executor.buffer(buffer);
  if (b.local) throw std::logic_error("a local buffer holds no rows after the step");
  const size_t rows = count_of(b.dim, executor.last_step());
  return View(b.data, {rows, static_cast<size_t>(b.width)}, self, {b.stride, 1});
}

}  // namespace

void bind_executor(nb::module_& m) {
  nb::class_<KvMemory>(m, "KvMemory", "Blocks of K and V, for the layers of one or more executors.")
      .def(nb::new_(&kv_memory), nb::kw_only(), "num_blocks"_a, "block_size"_a, "layers_per_block"_a, "kv_dtype"_a,
           "layers"_a)
      .def("block_bytes", &KvMemory::group_block_bytes, "group"_a)
      .def("read_block", &read_block, "group"_a, "block_id"_a, "out"_a)
      .def("write_block", &write_block, "group"_a, "block_id"_a, "data"_a)
      .def_prop_ro("num_bytes", &KvMemory::bytes);
  nb::class_<PyExecutor>(m, "Executor", "A recorded program. octavo.execution.native.executor records and runs it.")
      .def(nb::init<ThreadPool&, std::shared_ptr<KvMemory>, const std::string&, int, int, int, int, int>(),
           nb::keep_alive<1, 2>(), "pool"_a, "memory"_a, nb::kw_only(), "isa"_a, "max_tokens"_a, "max_rows"_a,
           "max_seqs"_a, "max_positions"_a, "vocab_size"_a)
      .def(
          "add_buffer",
          [](PyExecutor& e, bool rows, int width, bool local) {
            return e.native().add_buffer(rows ? Dim::Rows : Dim::Tokens, width, local);
          },
          nb::kw_only(), "rows"_a, "width"_a, "local"_a)
      .def(
          "add_panels", [](PyExecutor& e, int buffer, bool local) { return e.native().add_panels(buffer, local); },
          "buffer"_a, nb::kw_only(), "local"_a)
      .def("add_matrix", &PyExecutor::add_matrix, nb::kw_only(), "format"_a, "n"_a, "k"_a)
      .def("borrow_matrix", &PyExecutor::borrow_matrix, nb::keep_alive<1, 2>(), nb::kw_only(), "owner"_a, "matrix"_a)
      .def(
          "add_vector",
          [](PyExecutor& e, Floats values) { return e.native().weights().add_vector(values.data(), values.size()); },
          "values"_a)
      .def(
          "open_section", [](PyExecutor& e, bool rows) { e.native().open_section(rows ? Dim::Rows : Dim::Tokens); },
          nb::kw_only(), "rows"_a)
      .def("open_rows", [](PyExecutor& e) { e.native().open_rows(); })
      .def(
          "embed", [](PyExecutor& e, int matrix, float scale, int out) { e.native().embed(matrix, scale, out); },
          nb::kw_only(), "matrix"_a, "scale"_a, "out"_a)
      .def(
          "embed_positions", [](PyExecutor& e, int matrix, int out) { e.native().embed_positions(matrix, out); },
          nb::kw_only(), "matrix"_a, "out"_a)
      .def(
          "rms_norm",
          [](PyExecutor& e, int x, int out, int weight, float eps, int groups) {
            e.native().rms_norm(x, out, weight, eps, groups);
          },
          nb::kw_only(), "x"_a, "out"_a, "weight"_a, "eps"_a, "groups"_a)
      .def(
          "layer_norm",
          [](PyExecutor& e, int x, int out, int weight, std::optional<int> bias, float eps) {
            e.native().layer_norm(x, out, weight, bias.value_or(-1), eps);
          },
          nb::kw_only(), "x"_a, "out"_a, "weight"_a, "bias"_a.none(), "eps"_a)
      .def(
          "rope",
          [](PyExecutor& e, int x, int heads, int head_dim, int rotary_dim, int turns) {
            e.native().rope(x, heads, head_dim, rotary_dim, turns);
          },
          nb::kw_only(), "x"_a, "heads"_a, "head_dim"_a, "rotary_dim"_a, "turns"_a)
      .def(
          "cache_write", [](PyExecutor& e, int k, int v, int layer) { e.native().cache_write(k, v, layer); },
          nb::kw_only(), "k"_a, "v"_a, "layer"_a)
      .def(
          "gate",
          [](PyExecutor& e, const std::string& activation, int gate, int up, int out) {
            e.native().gate(activation_function(activation), gate, up, out);
          },
          nb::kw_only(), "activation"_a, "gate"_a, "up"_a, "out"_a)
      .def(
          "activate",
          [](PyExecutor& e, const std::string& activation, int x, int out) {
            e.native().activate(activation_function(activation), x, out);
          },
          nb::kw_only(), "activation"_a, "x"_a, "out"_a)
      .def(
          "add", [](PyExecutor& e, int x, int y, int out) { e.native().add(x, y, out); }, nb::kw_only(), "x"_a, "y"_a,
          "out"_a)
      .def(
          "scale", [](PyExecutor& e, int x, float factor, int out) { e.native().scale(x, factor, out); }, nb::kw_only(),
          "x"_a, "factor"_a, "out"_a)
      .def(
          "select", [](PyExecutor& e, int x, int out) { e.native().select(x, out); }, nb::kw_only(), "x"_a, "out"_a)
      .def(
          "reorder",
          [](PyExecutor& e, int x, Ints<1> order, int out) {
            e.native().reorder(x, std::vector<int32_t>(order.data(), order.data() + order.size()), out);
          },
          nb::kw_only(), "x"_a, "order"_a, "out"_a)
      .def(
          "softcap", [](PyExecutor& e, int x, float cap) { e.native().softcap(x, cap); }, nb::kw_only(), "x"_a, "cap"_a)
      .def(
          "quantize", [](PyExecutor& e, int panels) { e.native().quantize(panels); }, nb::kw_only(), "panels"_a)
      .def("linear", &PyExecutor::linear, nb::kw_only(), "x"_a, "panels"_a.none(), "segments"_a)
      .def(
          "attention",
          [](PyExecutor& e, int q, int out, int layer, int heads, float scale, float softcap) {
            e.native().attention(q, out, layer, heads, scale, softcap);
          },
          nb::kw_only(), "q"_a, "out"_a, "layer"_a, "heads"_a, "scale"_a, "softcap"_a)
      .def("matrix_bytes", [](PyExecutor& e, int matrix) { return e.native().weights().matrix_bytes(matrix); }, "matrix"_a)
      .def("allocate_weights", [](PyExecutor& e) { e.native().weights().allocate(); })
      .def(
          "map_weights", [](PyExecutor& e, int file, size_t offset) { e.native().weights().map_file(file, offset); },
          nb::kw_only(), "file"_a, "offset"_a)
      .def("fetch_weights", [](PyExecutor& e, int begin, int end) { e.native().weights().fetch(begin, end); }, "begin"_a,
           "end"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("pack", &PyExecutor::pack, "sources"_a, nb::kw_only(), "out"_a.none() = nb::none())
      .def(
          "route",
          [](PyExecutor& e, const std::string& routing, int logits, int top_k, int out) {
            e.native().route(routing_named(routing), logits, top_k, out);
          },
          nb::kw_only(), "routing"_a, "logits"_a, "top_k"_a, "out"_a)
      .def(
          "sigmoid_scale", [](PyExecutor& e, int x, int gate, int out) { e.native().sigmoid_scale(x, gate, out); },
          nb::kw_only(), "x"_a, "gate"_a, "out"_a)
      .def("experts", &PyExecutor::experts, nb::kw_only(), "x"_a, "routes"_a, "out"_a, "activation"_a, "experts"_a)
      .def(
          "add_experts_memory",
          [](PyExecutor& e, int experts, int top_k, int width, int inner) {
            e.native().memory_for({experts, top_k, width, inner});
          },
          nb::kw_only(), "experts"_a, "top_k"_a, "width"_a, "inner"_a)
      .def("expert_loads",
           [](PyExecutor& e) {
             std::vector<std::vector<int64_t>> loads;
             for (const auto& layer : e.native().expert_loads()) loads.emplace_back(layer.begin(), layer.end());
             return loads;
           })
      .def("expert_totals",
           [](PyExecutor& e) {
             std::vector<std::tuple<int64_t, int64_t>> totals;
             for (const auto& layer : e.native().expert_loads()) {
               int64_t sum = 0, most = 0;
               for (const auto& expert : layer) {
                 const int64_t met = expert.load(std::memory_order_relaxed);
                 sum += met;
                 most = std::max(most, met);
               }
               totals.emplace_back(sum, most);
             }
             return totals;
           })
      .def("build", [](PyExecutor& e) { e.native().build(); })
      .def("fill", &PyExecutor::fill, nb::kw_only(), "buffer"_a, "rows"_a)
      .def("run", &PyExecutor::run, nb::kw_only(), "token_ids"_a, "positions"_a, "seq_starts"_a, "context_lens"_a,
           "block_tables"_a, "slot_mapping"_a, "logit_rows"_a, "copies"_a)
      .def("run_rows", &PyExecutor::run_rows, "logit_rows"_a, nb::kw_only(), "last"_a.none() = nb::none())
      .def("time_stages", [](PyExecutor& e, bool on) { e.native().time_stages(on); }, "on"_a)
      .def("take_times", &PyExecutor::take_times)
      .def("view", &view, "buffer"_a)
      .def_prop_ro("packed_bytes", [](PyExecutor& e) { return e.native().weights().packed_bytes(); })
      .def_prop_ro("vector_bytes", [](PyExecutor& e) { return e.native().weights().vector_bytes(); })
      .def_prop_ro("step_bytes", [](PyExecutor& e) { return e.native().step_bytes(); })
      .def_prop_ro("scratch_bytes", [](PyExecutor& e) { return e.native().scratch_bytes(); });
}

}  // namespace octavo
