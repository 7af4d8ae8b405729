// Rotary position embedding.
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>

#include "opapi/functions/families.h"

namespace isthmus::ascend {
namespace {

constexpr int64_t kHalves = 0;       // (first half, second half) of the last dimension are the pairs
constexpr int64_t kInterleaved = 1;  // neighbours are

// Each pair (a, b) as (-b, a); backward, as (b, -a).
at::Tensor rotated(const at::Tensor& x, int64_t mode, bool backward) {
  TORCH_CHECK(mode == kHalves || mode == kInterleaved, "mode is ", mode, ", expected 0 or 1");
  const int64_t dim = mode == kHalves ? -2 : -1;
  const at::Tensor pairs = mode == kHalves ? x.unflatten(-1, {2, -1}) : x.unflatten(-1, {-1, 2});
  const at::Tensor first = pairs.select(dim, 0), second = pairs.select(dim, 1);
  return at::stack({backward ? second : second.neg(), backward ? first.neg() : first}, dim).flatten(-2);
}

// rotary(x, cos, sin, mode[, rotate]): the matrix rotate, if it is there, takes the place of the mode. Half
// types are rounded once.
c10::IValue rotary(Values& arguments, bool) {
  const at::Tensor x = widened(arguments[0].toTensor());
  const bool by_matrix = arguments.size() > 4 && arguments[4].isTensor() && arguments[4].toTensor().defined();
  const at::Tensor turned =
      by_matrix ? x.matmul(widened(arguments[4].toTensor())) : rotated(x, arguments[3].toInt(), false);
  return x.mul(widened(arguments[1].toTensor())).add(turned.mul(widened(arguments[2].toTensor())));
}

// rotary_grad(dy, cos, sin, x, mode): (dx, dcos, dsin); the last two undefined without x.
c10::IValue rotary_grad(Values& arguments, bool) {
  const at::Tensor dy = widened(arguments[0].toTensor()), cos = widened(arguments[1].toTensor()),
                   sin = widened(arguments[2].toTensor());
  const at::Tensor x = arguments[3].toTensor().defined() ? widened(arguments[3].toTensor()) : at::Tensor();
  const int64_t mode = arguments[4].toInt();
  at::Tensor dcos, dsin;
  if (x.defined()) {
    dcos = dy.mul(x).sum_to_size(cos.sizes());
    dsin = dy.mul(rotated(x, mode, false)).sum_to_size(sin.sizes());
  }
  return c10::ivalue::Tuple::create(dy.mul(cos).add(rotated(dy.mul(sin), mode, true)), dcos, dsin);
}

// Turns the first columns of each head by the rows of a table of cosines and sines that positions name; three
// positions a token share the columns by sections, one after the other or in turn.
void rotary_by_position(const Call& call) {
  const at::Tensor positions = call.tensor("positions").to(at::kLong),
                   table = widened(call.tensor("cos_sin_cache"));
  const auto sections = call.ints("mrope_section");
  const int64_t columns = table.size(-1), head = call.integer("head_size"), tokens = positions.size(-1);
  const at::Tensor rows = table.index_select(0, positions.reshape(-1)).view({-1, tokens, columns});
  const auto halves = equal_parts(rows, 2, -1);
  const auto joined = [&](const at::Tensor& part) {  // [positions a token, tokens, columns / 2]
    if (part.size(0) == 1) return part[0];
    TORCH_CHECK(part.size(0) == 3 && sections.size() == 3, "positions has ", part.size(0),
                " rows and mropeSection ", sections.size(), " elements, expected 3");
    if (!call.flag("cache_mode"))
      return at::cat(
          {part[0].slice(-1, 0, sections[0]), part[1].slice(-1, sections[0], sections[0] + sections[1]),
           part[2].slice(-1, sections[0] + sections[1], sections[0] + sections[1] + sections[2])},
          -1);
    const at::Tensor result = part[0].clone();
    for (int64_t i = 1; i < 3; ++i)
      result.slice(-1, i, sections[1] * 3, 3).copy_(part[i].slice(-1, i, sections[1] * 3, 3));
    return result;
  };
  const at::Tensor cos = joined(halves[0]).unsqueeze(1), sin = joined(halves[1]).unsqueeze(1);
  const int64_t mode = call.flag("is_neox_style") ? kHalves : kInterleaved;
  const auto whole = [&](const at::Tensor& half) {
    return mode == kHalves ? at::cat({half, half}, -1) : half.repeat_interleave(2, -1);
  };
  for (const auto& [name, out] : {std::pair{"query", "query_out"}, std::pair{"key", "key_out"}}) {
    const at::Tensor x = widened(call.tensor(name)).reshape({tokens, -1, head});
    const at::Tensor turned = x.slice(-1, 0, columns);
    call.give(out, at::cat({turned.mul(whole(cos)).add(rotated(turned, mode, false).mul(whole(sin))),
                            x.slice(-1, columns)},
                           -1));
  }
}

}  // namespace

at::Tensor rotated_halves(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  return x.mul(cos).add(rotated(x, kHalves, false).mul(sin));
}

const std::vector<NamedFunction>& rotary_functions() {
  static const std::vector<NamedFunction> functions = {{"rotary", rotary}, {"rotary_grad", rotary_grad}};
  return functions;
}

const std::vector<NamedFamily>& rotary_families() {
  static const std::vector<NamedFamily> families = {{"rotary_by_position", rotary_by_position}};
  return families;
}

}  // namespace isthmus::ascend
