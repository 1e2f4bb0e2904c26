// Speed of the linear kernels on one core: thread CPU time, 20th percentile of many short calls, so that neighbours on
// a shared machine disturb little. Weights rotate over 160 MB of copies: with few rows they stream from memory.
//   bench_linear [auto|amx|avx512|avx2|portable] [rows=1,2,9] [FORMAT K N]...
// Without shapes, and rows: the table of docs/kernels.md.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "linear/linear.h"

using namespace octavo;

namespace {

struct Shape {
  std::string format;
  int k, n;
};

struct NamedFormat {
  const char* name;
  Format format;
};
constexpr NamedFormat kFormats[] = {
    {"F32", Format::F32},       {"F16", Format::F16},     {"BF16", Format::BF16}, {"F8", Format::F8},
    {"Q4_0", Format::Q4_0},     {"Q4_1", Format::Q4_1},   {"Q5_0", Format::Q5_0}, {"Q5_1", Format::Q5_1},
    {"Q8_0", Format::Q8_0},     {"Q2_K", Format::Q2_K},   {"Q3_K", Format::Q3_K}, {"Q4_K", Format::Q4_K},
    {"Q5_K", Format::Q5_K},     {"Q6_K", Format::Q6_K},   {"Z4", Format::Z4},     {"S8", Format::S8},
    {"IQ4_NL", Format::IQ4_NL}, {"IQ4_XS", Format::IQ4_XS}, {"MXFP4", Format::MXFP4},
};
const std::vector<Shape> kShapes = {
    {"Q4_1", 576, 576},   {"Q4_1", 576, 1536},    {"Q4_1", 1536, 576},  {"Q4_0", 576, 1536},  {"Z4", 576, 1536},
    {"Q8_0", 576, 49152}, {"S8", 576, 1536},      {"Q5_0", 896, 4864},  {"Q5_0", 640, 2048},  {"Q5_1", 896, 4864},
    {"Q2_K", 4864, 896},  {"Q3_K", 4864, 896},    {"Q4_K", 4864, 896},  {"Q4_K", 2048, 640},  {"Q5_K", 4864, 896},
    {"Q6_K", 4864, 896},  {"Q6_K", 2048, 640},    {"IQ4_NL", 896, 4864}, {"IQ4_XS", 4864, 896}, {"MXFP4", 896, 4864}, {"BF16", 576, 1536},
    {"F16", 576, 1536},   {"F32", 576, 1536},     {"F8", 576, 1536},
};
const std::vector<int> kRows = {1, 2, 4, 8, 16, 32, 128};
constexpr size_t kStreamBytes = 160u << 20;
constexpr int kOutputsPerCall = 3072;

uint32_t random_state = 12345;
uint32_t random_bits() {
  random_state = random_state * 1664525u + 1013904223u;
  return random_state >> 8;
}
float random_float() { return static_cast<float>(random_bits()) / 16777216.0f - 0.5f; }

double cpu_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

template <class Call>
double percentile_seconds(Call&& call) {
  call();
  double start = cpu_seconds();
  call();
  const int inner = std::max(1, static_cast<int>(0.002 / std::max(cpu_seconds() - start, 1e-9)));
  std::vector<double> seconds;
  for (int i = 0; i < 41; i++) {
    start = cpu_seconds();
    for (int j = 0; j < inner; j++) call();
    seconds.push_back((cpu_seconds() - start) / inner);
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 5];
}

uint8_t* huge_pages(size_t bytes) {
  constexpr size_t page = 2u << 20;
  bytes = (bytes + page - 1) / page * page;
  void* p = std::aligned_alloc(page, bytes);
#if defined(__linux__)
  madvise(p, bytes, MADV_HUGEPAGE);
#endif
  std::memset(p, 0, bytes);
  return static_cast<uint8_t*>(p);
}

Format format_named(const std::string& name) {
  for (const auto& entry : kFormats) {
    if (name == entry.name) return entry.format;
  }
  std::fprintf(stderr, "no such format: %s\n", name.c_str());
  std::exit(2);
}

// File bytes whose 16-bit words are small finite halves (and bfloat16s) wherever they fall.
std::vector<uint8_t> random_file(const PackedLinear& w) {
  std::vector<uint8_t> raw(linear_file_bytes(w.format, w.n, w.k));
  for (size_t i = 0; i + 1 < raw.size(); i += 2) {
    const uint16_t word = static_cast<uint16_t>((random_bits() & 0x83ff) | 0x2000);
    std::memcpy(raw.data() + i, &word, 2);
  }
  if (w.format == Format::MXFP4) {  // its scales are bytes: products of any would be subnormal, which is slow
    for (size_t i = 0; i < raw.size(); i += 17) raw[i] = 120;
  }
  return raw;
}

struct Bench {
  const LinearKernels& kernels;
  PackedLinear w;
  std::vector<uint8_t*> copies;
  std::vector<float> x;
  float* y;
  ActGroup* panels;

  void pack() {
    const size_t bytes = w.num_tiles * w.tile_bytes;
    const auto raw = random_file(w);
    uint8_t* memory = huge_pages(kStreamBytes + bytes);
    for (size_t at = 0; at < kStreamBytes; at += bytes) copies.push_back(memory + at);
    const double start = cpu_seconds();
    linear_pack(w, raw.data(), nullptr, 0, w.num_tiles, memory);
    std::printf("  packs %.0f MB/s |", static_cast<double>(raw.size()) / (cpu_seconds() - start) / 1e6);
    for (uint8_t* copy : copies) {
      if (copy != memory) std::memcpy(copy, memory, bytes);
    }
  }

  void quantize(int rows) {
    x.resize(static_cast<size_t>(rows) * w.k);
    for (auto& v : x) v = random_float();
    y = reinterpret_cast<float*>(huge_pages(sizeof(float) * rows * w.n));
    panels = reinterpret_cast<ActGroup*>(huge_pages(sizeof(ActGroup) * (rows / kPanelRows + kRowsTogether) * (w.k / kGroup)));
    if (!w.int8_activations()) return;
    const double seconds = percentile_seconds([&] { quantize_all(rows); });
    std::printf(" quantises a row in %.2f us\n ", seconds / rows * 1e6);
  }

  void quantize_all(int rows) { kernels.quantize_rows(x.data(), w.k, 0, rows, rows, w.k, panels); }

  void measure(int rows) {
    if (w.int8_activations()) quantize_all(rows);
    const int pieces = std::max(1, w.n / kOutputsPerCall), tiles = w.num_tiles / pieces;
    long turn = 0;
    const double seconds = percentile_seconds([&] {
      w.data = copies[turn / pieces % copies.size()];
      const int first = static_cast<int>(turn++ % pieces) * tiles;
      kernels.run(w, Activations{panels, x.data(), w.k, rows}, nullptr, false, y, w.n, first, first + tiles);
    });
    const double outputs = static_cast<double>(tiles) * w.tile_cols;
    std::printf(" M%d %.1f GB/s %.0f GOP/s |", rows, tiles * static_cast<double>(w.tile_bytes) / seconds / 1e9,
                2.0 * rows * w.k * outputs / seconds / 1e9);
    std::fflush(stdout);
  }
};

void bench_shape(const LinearKernels& kernels, const Shape& shape, const std::vector<int>& all_rows) {
  Bench bench{kernels, linear_layout(format_named(shape.format), shape.n, shape.k), {}, {}, nullptr, nullptr};
  std::printf("%s K=%d N=%d (%.2f MB)\n", shape.format.c_str(), shape.k, shape.n,
              static_cast<double>(bench.w.num_tiles * bench.w.tile_bytes) / 1e6);
  bench.pack();
  bench.quantize(*std::max_element(all_rows.begin(), all_rows.end()));
  for (int rows : all_rows) bench.measure(rows);
  std::printf("\n");
  std::free(bench.copies[0]);
  std::free(bench.panels);
  std::free(bench.y);
}

// "1,2,9"
std::vector<int> numbers_in(const char* list) {
  std::vector<int> numbers;
  for (const char* at = list; at != nullptr; at = std::strchr(at, ',')) {
    at += *at == ',';
    numbers.push_back(std::atoi(at));
  }
  return numbers;
}

}  // namespace

int main(int argc, char** argv) {
  const LinearKernels& kernels = linear_kernels(resolve_isa(argc > 1 ? argv[1] : "auto"));
  const bool has_rows = argc > 2 && std::strncmp(argv[2], "rows=", 5) == 0;
  const std::vector<int> rows = has_rows ? numbers_in(argv[2] + 5) : kRows;
  std::vector<Shape> shapes;
  for (int i = has_rows ? 3 : 2; i + 2 < argc; i += 3) {
    shapes.push_back({argv[i], std::atoi(argv[i + 1]), std::atoi(argv[i + 2])});
  }
  for (const Shape& shape : shapes.empty() ? kShapes : shapes) bench_shape(kernels, shape, rows);
}
