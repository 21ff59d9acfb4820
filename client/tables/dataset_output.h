// Datasets for people: what validation found, and samples with their trained
// text marked.
//
// Text of a dataset is somebody else's and is shown as base/visible_text.h
// says. Pure; thread-safe.
#ifndef ROUNDHOUSE_CLIENT_TABLES_DATASET_OUTPUT_H_
#define ROUNDHOUSE_CLIENT_TABLES_DATASET_OUTPUT_H_

#include <string>

#include "proto/roundhouse/v1/dataset.pb.h"

namespace roundhouse::client {

// A "key: value" line each.
std::string ValidationText(const v1::ValidateDatasetResponse& response);

// A head line for each sample, then its text: what is trained in green, or
// without `color` between "[[" and "]]".
std::string PreviewText(const v1::PreviewDatasetResponse& response, bool color);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_TABLES_DATASET_OUTPUT_H_
