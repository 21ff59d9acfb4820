#include "server/admission/job_fit.h"

#include <string>

#include "gtest/gtest.h"
#include "server/admission/admission_test_fixture.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

class JobFitTest : public AdmissionTest {
 protected:
  static JobFit Room(uint64_t device_bytes, uint64_t host_bytes) {
    return JobFit({.device_count = 2,
                   .device = {device_bytes},
                   .host_bytes = host_bytes,
                   .state_dir = testing::TempDir()});
  }
};

TEST_F(JobFitTest, AJobFitsWhereHostAndDevicesHaveWhatItNeeds) {
  const AdmittedJob job = *Check(kJob);
  const JobFit fit = Room(uint64_t{256} << 20, job.host->total());
  const auto plan = fit.CheckPlan(job.spec, job.model.config);
  ASSERT_TRUE(plan.ok()) << plan.status();
  JobNeeds needs;
  EXPECT_TRUE(fit.CheckMemory(job.spec, job.model.config, *plan, &needs).ok());
  EXPECT_EQ(needs.host_limit_bytes, static_cast<int64_t>(job.host->total()));
  EXPECT_TRUE(fit.CheckFreeDisk(job.spec, job.model.config, 0, &needs).ok());
  EXPECT_GT(needs.disk_free_bytes, 0);
}

TEST_F(JobFitTest, OneByteLessOfHostMemoryIsTooLittle) {
  const AdmittedJob job = *Check(kJob);
  const auto check = [&](uint64_t host_bytes) {
    const JobFit fit = Room(uint64_t{256} << 20, host_bytes);
    const auto plan = fit.CheckPlan(job.spec, job.model.config);
    EXPECT_TRUE(plan.ok()) << plan.status();
    JobNeeds needs;
    return fit.CheckMemory(job.spec, job.model.config, *plan, &needs);
  };
  // Without any it needs the least.
  const JobFit none = Room(uint64_t{256} << 20, 0);
  const uint64_t least = none.NeedOfSpec(job.spec, job.model.config)->total();
  EXPECT_LT(least, job.host->total());
  EXPECT_TRUE(check(least).ok());
  EXPECT_EQ(ErrorReason(check(least - 1)), FieldReason::kHostMemory);
}

TEST_F(JobFitTest, DevicesWithoutMemoryForALayerAreRefused) {
  const AdmittedJob job = *Check(kJob);
  const JobFit fit = Room(1 << 10, uint64_t{1} << 30);
  EXPECT_EQ(ErrorReason(fit.CheckPlan(job.spec, job.model.config).status()),
            FieldReason::kDeviceMemory);
}

}  // namespace
}  // namespace roundhouse
