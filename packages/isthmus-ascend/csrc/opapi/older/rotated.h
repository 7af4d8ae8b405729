// Rotated boxes.
#pragma once

namespace isthmus::ascend {

struct Rotated {
  double x, y, width, height, degrees;  // centre, size and angle

  double area() const { return width * height; }
  double intersection(const Rotated& other) const;  // its area; 0 if either has no area
};

// Reads x, y, width, height and degrees; if `corners`, x1, y1, x2, y2 and degrees the other way round, as
// in op-plugin's test_nms_rotated.py.
Rotated rotated(const float* box, bool corners);

}  // namespace isthmus::ascend
