// Uploads as text.  Pure; thread-safe.
#ifndef ROUNDHOUSE_CLIENT_TABLES_UPLOAD_OUTPUT_H_
#define ROUNDHOUSE_CLIENT_TABLES_UPLOAD_OUTPUT_H_

#include <string>
#include <vector>

#include "proto/roundhouse/v1/upload.pb.h"

namespace roundhouse::client {

// "dataset:dates": what a job file of the upload's project says.
std::string UploadReferenceText(const v1::Upload& upload);
// "dataset:vision/dates@3": this version, from anywhere.
std::string UploadVersionText(const v1::Upload& upload);

std::string UploadTable(const std::vector<v1::Upload>& uploads);
// One in full, with its files.
std::string UploadText(const v1::Upload& upload);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_TABLES_UPLOAD_OUTPUT_H_
