// Suppression of boxes of object detectors that overlap better ones.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include "opapi/functions/families.h"
#include "opapi/older/families.h"
#include "opapi/older/rotated.h"

namespace isthmus::ascend {
namespace {

// Intersection over union of two boxes; 0 without an area.
double overlap(const float* first, const float* second) {
  const auto size = [](const float* box) { return (box[2] - box[0]) * (box[3] - box[1]); };
  const float across = std::min(first[2], second[2]) - std::max(first[0], second[0]),
              down = std::min(first[3], second[3]) - std::max(first[1], second[1]);
  const float both = std::max(across, 0.F) * std::max(down, 0.F), all = size(first) + size(second) - both;
  return all > 0 ? both / all : 0;
}

using Overlap = double (*)(const float* first, const float* second);

struct Candidate {
  float score;
  int64_t number;  // number of its class, or its own
  const float* box;
};

void best_first(std::vector<Candidate>& candidates, int64_t count) {
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& one, const Candidate& other) { return one.score > other.score; });
  if (static_cast<int64_t>(candidates.size()) > count) candidates.resize(std::max<int64_t>(count, 0));
}

// The candidates that overlap no better one by more than the threshold.
std::vector<Candidate> unsuppressed(std::vector<Candidate> candidates, Overlap overlap, double threshold,
                                    int64_t count) {
  std::vector<Candidate> kept;
  best_first(candidates, static_cast<int64_t>(candidates.size()));
  for (const Candidate& each : candidates) {
    const auto hides = [&](const Candidate& better) { return overlap(better.box, each.box) > threshold; };
    if (static_cast<int64_t>(kept.size()) < count && std::none_of(kept.begin(), kept.end(), hides))
      kept.push_back(each);
  }
  return kept;
}

// Boxes [batch, anchors, 1 or classes, 4] by scores [batch, anchors, classes]: suppressed in each class; the
// best of all classes are given, best first, then zeros.
void batch_nms(const Call& call) {
  TORCH_CHECK(!call.flag("change_coordinate_frame") && !call.flag("transpose_box"),
              "change_coordinate_frame and transpose_box are not supported");
  const at::Tensor boxes = call.tensor("boxes").to(at::kFloat).contiguous(),
                   scores = call.tensor("scores").to(at::kFloat).contiguous();
  TORCH_CHECK(boxes.dim() == 4 && scores.dim() == 3 && boxes.size(3) == 4 &&
                  boxes.size(0) == scores.size(0) && boxes.size(1) == scores.size(1) &&
                  (boxes.size(2) == 1 || boxes.size(2) == scores.size(2)),
              "boxes and scores have shapes ", boxes.sizes(), " and ", scores.sizes(),
              ", expected [batch, anchors, 1 or classes, 4] and [batch, anchors, classes]");
  const int64_t total = call.integer("max_total_size");
  TORCH_CHECK(total >= 0, "max_total_size is ", total, ", expected at least 0");
  const at::Tensor rows = at::zeros({boxes.size(0), total, 6});  // corners, score, class
  const at::Tensor counts = at::zeros({boxes.size(0)}, at::kInt);
  const auto at_box = boxes.accessor<float, 4>();
  const auto at_score = scores.accessor<float, 3>();
  for (int64_t i = 0; i < boxes.size(0); ++i) {
    std::vector<Candidate> chosen;
    for (int64_t label = 0; label < scores.size(2); ++label) {
      std::vector<Candidate> candidates;
      for (int64_t j = 0; j < boxes.size(1); ++j)
        if (at_score[i][j][label] > call.real("score_threshold"))
          candidates.push_back(
              {at_score[i][j][label], label, at_box[i][j][boxes.size(2) == 1 ? 0 : label].data()});
      for (const Candidate& each :
           unsuppressed(candidates, overlap, call.real("iou_threshold"), call.integer("max_size_per_class")))
        chosen.push_back(each);
    }
    best_first(chosen, total);
    auto row = rows.accessor<float, 3>()[i];
    for (size_t j = 0; j < chosen.size(); ++j) {
      std::copy_n(chosen[j].box, 4, row[j].data());
      row[j][4] = chosen[j].score;
      row[j][5] = static_cast<float>(chosen[j].number);
    }
    counts[i].fill_(static_cast<int64_t>(chosen.size()));
  }
  call.give("nmsed_boxes", rows.slice(2, 0, 4));
  call.give("nmsed_scores", rows.select(2, 4));
  call.give("nmsed_classes", rows.select(2, 5));
  call.give("nmsed_num", counts);
}

// Rows of a box and its score, best first, with their numbers, and 1 for those that are kept.
void nms_with_mask(const Call& call) {
  const at::Tensor rows = call.tensor("box_scores").to(at::kFloat).contiguous();
  TORCH_CHECK(rows.dim() == 2 && rows.size(1) >= 5, "box_scores has shape ", rows.sizes(),
              ", expected [boxes, 5 or more]");
  const auto at_row = rows.accessor<float, 2>();
  std::vector<Candidate> candidates;
  for (int64_t i = 0; i < rows.size(0); ++i) candidates.push_back({at_row[i][4], i, at_row[i].data()});
  best_first(candidates, rows.size(0));
  const at::Tensor order = at::empty({rows.size(0)}, at::kLong), mask = at::zeros({rows.size(0)}, at::kByte);
  for (int64_t i = 0; i < rows.size(0); ++i) order[i] = candidates[i].number;
  for (const Candidate& each : unsuppressed(candidates, overlap, call.real("iou_threshold"), rows.size(0)))
    mask.masked_fill_(order.eq(each.number), 1);
  call.give("selected_boxes", rows.slice(1, 0, 5).index_select(0, order));
  call.give("selected_idx", order);
  call.give("selected_mask", mask);
}

// Suppresses boxes of x, y, width, height and degrees, or of corners and degrees.
template <bool corners>
double rotated_overlap(const float* first, const float* second) {
  const Rotated one = rotated(first, corners), other = rotated(second, corners);
  const double both = one.intersection(other);
  return both > 0 ? both / (one.area() + other.area() - both) : 0;
}

// rotated_nms(boxes, scores, labels, iou_threshold, score_threshold, max_output_size, mode): numbers of the
// boxes that are kept, best first.
c10::IValue rotated_nms(Values& arguments, bool) {
  const at::Tensor boxes = arguments[0].toTensor().to(at::kFloat).contiguous(),
                   scores = arguments[1].toTensor().to(at::kFloat).contiguous();
  const int64_t most = arguments[5].toInt(), mode = arguments[6].toInt();
  TORCH_CHECK(mode == 0 || mode == 1, "mode is ", mode, ", expected 0 or 1");
  TORCH_CHECK(boxes.dim() == 2 && boxes.size(1) == 5 && scores.numel() == boxes.size(0),
              "boxes and scores have shapes ", boxes.sizes(), " and ", scores.sizes(),
              ", expected [boxes, 5] and [boxes]");
  TORCH_CHECK(arguments[2].toTensor().numel() == 1, "labels has ", arguments[2].toTensor().numel(),
              " elements, expected one class");
  std::vector<Candidate> candidates;
  for (int64_t i = 0; i < boxes.size(0); ++i) {
    const float score = scores.const_data_ptr<float>()[i];
    if (score > arguments[4].toDouble())
      candidates.push_back({score, i, boxes.const_data_ptr<float>() + 5 * i});
  }
  std::vector<int64_t> kept;
  for (const Candidate& each :
       unsuppressed(candidates, mode == 0 ? rotated_overlap<false> : rotated_overlap<true>,
                    arguments[3].toDouble(), most < 0 ? std::numeric_limits<int64_t>::max() : most))
    kept.push_back(each.number);
  return at::tensor(kept, at::kLong);
}

}  // namespace

const std::vector<NamedFamily>& suppression_families() {
  static const std::vector<NamedFamily> families = {{"batch_nms", batch_nms},
                                                    {"nms_with_mask", nms_with_mask}};
  return families;
}

const std::vector<NamedFunction>& suppression_functions() {
  static const std::vector<NamedFunction> functions = {{"rotated_nms", rotated_nms}};
  return functions;
}

}  // namespace isthmus::ascend
