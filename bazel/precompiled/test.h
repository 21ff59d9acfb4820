#include "bazel/precompiled/common.h"
#include "gtest/gtest.h"
