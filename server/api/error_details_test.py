"""Our grpc-status-details-bin, decoded with Google's own messages."""

import pathlib
import unittest

from google.rpc import code_pb2, error_details_pb2, status_pb2

FOLDER = pathlib.Path(__file__).parent / "error_details"
RESOURCE = "projects/default/fineTuningJobs/job-9"


def read(name):
    """google.rpc.Status and {type: detail} of one class of error."""
    status = status_pb2.Status()
    status.ParseFromString((FOLDER / f"{name}.bin").read_bytes())
    details = {}
    for packed in status.details:
        kind = packed.TypeName().removeprefix("google.rpc.")
        detail = getattr(error_details_pb2, kind)()
        assert packed.Unpack(detail)
        details[kind] = detail
    return status, details


class ErrorDetailsTest(unittest.TestCase):
    def check(self, name, code, reason, *kinds):
        status, details = read(name)
        self.assertEqual(status.code, code)
        self.assertEqual(set(details), {"ErrorInfo", *kinds})
        info = details["ErrorInfo"]
        self.assertEqual((info.reason, info.domain), (reason, "roundhouse"))
        self.assertEqual(dict(info.metadata), {"resource": RESOURCE})
        # Nothing that Google's messages do not know.
        for message in (status, *details.values()):
            again = type(message)()
            again.CopyFrom(message)
            again.DiscardUnknownFields()
            self.assertEqual(again.SerializeToString(deterministic=True),
                             message.SerializeToString(deterministic=True))
        return status, details

    def test_a_bad_field_is_named(self):
        status, details = self.check("invalid", code_pb2.INVALID_ARGUMENT,
                                     "INVALID_VALUE", "BadRequest")
        violation, = details["BadRequest"].field_violations
        self.assertEqual(violation.field, "batch_size")
        self.assertEqual(violation.description, "batch_size: 0 is too small")
        self.assertEqual(status.message, violation.description)

    def test_a_quota_names_its_subject(self):
        _, details = self.check("quota", code_pb2.RESOURCE_EXHAUSTED,
                                "HOST_MEMORY", "QuotaFailure")
        violation, = details["QuotaFailure"].violations
        self.assertEqual((violation.subject, violation.description),
                         ("model_name_or_path", "needs 9 bytes of 8"))

    def test_an_illegal_state_names_the_job(self):
        _, details = self.check("precondition", code_pb2.FAILED_PRECONDITION,
                                "ILLEGAL_STATE", "PreconditionFailure")
        violation, = details["PreconditionFailure"].violations
        self.assertEqual(
            (violation.type, violation.subject, violation.description),
            ("STATE", RESOURCE, "it has ended"))

    def test_what_is_missing_is_named(self):
        _, details = self.check("missing", code_pb2.NOT_FOUND, "NOT_FOUND",
                                "ResourceInfo")
        found = details["ResourceInfo"]
        self.assertEqual(
            (found.resource_type, found.resource_name, found.description),
            ("roundhouse.v1.FineTuningJob", RESOURCE,
             "there is no job job-9"))

    def test_when_to_come_again(self):
        _, details = self.check("busy", code_pb2.UNAVAILABLE, "TRY_LATER",
                                "RetryInfo")
        self.assertEqual(details["RetryInfo"].retry_delay.seconds, 1)

    def test_our_own_fault_tells_nothing(self):
        status, _ = self.check("ours", code_pb2.INTERNAL, "INTERNAL")
        self.assertNotIn(b"secret", status.SerializeToString())


if __name__ == "__main__":
    unittest.main()
