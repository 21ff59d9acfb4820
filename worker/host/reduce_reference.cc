#include "worker/host/reduce_reference.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/convert.h"
#include "base/dtype.h"
#include "base/reduction.h"

namespace roundhouse::worker {
namespace {

int64_t SplitOf(int64_t size) {
  int64_t power = 1;
  while (2 * power < size) power *= 2;
  return power;
}

std::vector<float> Values(TestJob& job, const wire::BufferRef& buffer) {
  const float* at = job.Fp32(buffer.offset, buffer.bytes / 4);
  return std::vector<float>(at, at + buffer.bytes / 4);
}

}  // namespace

Row TreeSum(const std::vector<Row>& groups, int64_t begin, int64_t end) {
  if (end - begin == 1) return groups[begin];
  const int64_t middle = begin + SplitOf(end - begin);
  Row left = TreeSum(groups, begin, middle);
  const Row right = TreeSum(groups, middle, end);
  if (!left) return right;
  if (!right) return left;
  for (size_t i = 0; i < left->size(); ++i) (*left)[i] += (*right)[i];
  return left;
}

Round MakeRound(TestJob& job, uint32_t groups, bool contributions,
                bool micro_batches, wire::HostOp* op, int64_t vocab_end) {
  Round round;
  op->total_groups = groups;
  const uint64_t elements = job.unit(op->unit).element_count;
  for (uint32_t g = 0; contributions && g < groups; ++g) {
    round.uses.push_back(Values(job, job.RandomValues(DType::kF32, elements)));
  }
  const auto cut = static_cast<int64_t>(job.Random() % (groups + 1));
  for (const IndexRange covered :
       {IndexRange{0, cut}, IndexRange{cut, groups}}) {
    if (!contributions) break;
    for (const IndexRange node : LargestSubtrees(groups, covered)) {
      std::vector<Row> leaves(round.uses.begin(), round.uses.end());
      const Row sum = TreeSum(leaves, node.begin, node.end);
      const wire::BufferRef buffer = job.Allocate(elements * sizeof(float));
      std::memcpy(job.arena().Bytes(buffer), sum->data(), buffer.bytes);
      op->contributions.push_back({static_cast<uint32_t>(node.begin),
                                   static_cast<uint32_t>(node.size()), buffer});
    }
  }
  const DType dtype = job.layout().dtype;
  for (uint32_t b = 0; micro_batches && b < groups + groups / 2; ++b) {
    wire::HostMicroBatch batch;
    batch.group =
        b * 2 / 3;  // some of two micro-batches, the last maybe of one
    batch.rows = 2;
    batch.row_tokens = 15;
    batch.tokens = job.RandomTokens(30, vocab_end);
    batch.data = job.RandomValues(dtype, 30 * job.layout().model.hidden_size);
    round.micro_batches.push_back(batch);
  }
  op->micro_batches = round.micro_batches;
  return round;
}

void ReduceReference::Add(const Round& round, uint32_t groups,
                          bool contributions) {
  const auto elements = static_cast<size_t>(job_.unit(unit_).element_count);
  const bool first = sum_.empty();
  sum_.resize(elements);
  if (contributions) {
    std::vector<Row> leaves(round.uses.begin(), round.uses.end());
    const Row use = TreeSum(leaves, 0, groups);
    for (size_t i = 0; i < elements; ++i) {
      sum_[i] = first ? (*use)[i] : sum_[i] + (*use)[i];
    }
  }
  const int64_t hidden = job_.layout().model.hidden_size;
  const int64_t vocab = job_.layout().model.vocab_size;
  for (int64_t row = 0; !round.micro_batches.empty() && row < vocab; ++row) {
    const Row sum = RowSum(round, groups, static_cast<int32_t>(row));
    if (!sum) continue;
    for (int64_t i = 0; i < hidden; ++i) {
      float& at = sum_[row * hidden + i];
      at = contributions || !first ? at + (*sum)[i] : (*sum)[i];
    }
  }
}

double ReduceReference::NormSquared() const {
  double total = 0;
  const wire::UnitLayout& u = job_.unit(unit_);
  for (uint32_t p = 0; p < u.parameter_count; ++p) {
    const wire::ParameterLayout& parameter =
        job_.parameter(u.first_parameter + p);
    const float* values = sum_.data() + parameter.unit_offset_elements;
    for (uint64_t begin = 0; begin < parameter.element_count; begin += 32768) {
      double chunk = 0;
      for (uint64_t i = begin;
           i < std::min(parameter.element_count, begin + 32768); ++i) {
        chunk += double{values[i]} * double{values[i]};
      }
      total += chunk;
    }
  }
  return total;
}

Row ReduceReference::RowSum(const Round& round, uint32_t groups,
                            int32_t row) const {
  const DType dtype = job_.layout().dtype;
  const auto hidden = static_cast<uint64_t>(job_.layout().model.hidden_size);
  std::vector<Row> sums(groups);
  for (const wire::HostMicroBatch& batch : round.micro_batches) {
    const uint64_t count = uint64_t{batch.rows} * batch.row_tokens;
    const auto* tokens = job_.arena().At<int32_t>(batch.tokens.offset, count);
    for (uint64_t t = 0; t < count; ++t) {
      if (tokens[t] != row) continue;
      std::vector<float> addend(hidden);
      ToF32(dtype,
            job_.arena().Bytes(batch.data) + t * hidden * DTypeBytes(dtype),
            addend.data(), hidden);
      Row& sum = sums[batch.group];
      if (!sum) {
        sum = addend;
      } else {
        for (uint64_t i = 0; i < hidden; ++i) (*sum)[i] += addend[i];
      }
    }
  }
  return TreeSum(sums, 0, groups);
}

}  // namespace roundhouse::worker
