"""What the programs of a build with CUDA load, with no LD_LIBRARY_PATH."""

import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path.cwd()
CUDA = re.compile(r"lib(torch|c10|cuda|cublas|cudnn|nccl|nvshmem)")


def libraries(program):
    """{name: path} of what the program loads; the path "not" is missing."""
    done = subprocess.run(["ldd", ROOT / program], check=True,
                          capture_output=True, text=True,
                          env={"PATH": "/usr/bin:/bin"})
    return dict(re.findall(r"(\S+) => (\S+)", done.stdout))


class CudaLinkTest(unittest.TestCase):
    def test_the_worker_finds_the_libraries_of_the_wheels(self):
        found = libraries("worker/roundhouse-worker")
        self.assertNotIn("not", found.values(), found)
        for name in ("libcudart.so.13", "libcublas.so.13", "libcudnn.so.9",
                     "libnccl.so.2"):
            self.assertIn("/nvidia/", found.get(name, ""), name)
        for name in ("libtorch_cuda.so", "libc10_cuda.so"):
            self.assertIn("/torch/lib/", found.get(name, ""), name)
        # The driver's own, which cudart opens where there is one.
        self.assertNotIn("libcuda.so.1", found)

    def test_daemon_and_client_load_nothing_of_cuda(self):
        for program in ("server/roundhoused", "client/roundhouse"):
            found = libraries(program)
            self.assertIn("libc.so.6", found, program)
            self.assertEqual([n for n in found if CUDA.match(n)], [], program)


if __name__ == "__main__":
    unittest.main()
