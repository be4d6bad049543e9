// What is demanded of a selection before its rows are looked at.
#pragma once

#include "seriatim/check.hpp"

namespace seriatim {

// Shapes and dtypes; fills in the counts of `about`. Elements are not read.
Status admit_shapes(const SelectionViews& views, Selection::About& about);
// The geometry, and every visible count; fills in `about.visible`. Takes admitted shapes.
Status admit_visible(const SelectionViews& views, Selection::About& about);

}  // namespace seriatim
