// Rows of older.table: operators of the older interface. Their parameters are the inputs, the attributes by
// name, and the outputs.
#pragma once

namespace isthmus::ascend {

class Program;

// The first row of older.table in kRows.
extern const int kOlderRow;

// The row, compiled at its first use.
const Program& program(int row);

}  // namespace isthmus::ascend
