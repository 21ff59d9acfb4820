"""CUDA sources, and what is built only with --config=cuda."""

load("@local_cuda//:defs.bzl", "CUDA_HOME")
load(":cc.bzl", "cc_library")

# Targets with this are left out of a build without CUDA.
ONLY_WITH_CUDA = select({
    "//bazel:with_cuda": [],
    "//conditions:default": ["//bazel:incompatible"],
})

# Ampere, Ada, Hopper, and Blackwell of data centres and of desks; PTX of the
# last for what comes after.
_GENCODE = [
    "-gencode arch=compute_80,code=sm_80",
    "-gencode arch=compute_86,code=sm_86",
    "-gencode arch=compute_89,code=sm_89",
    "-gencode arch=compute_90,code=sm_90",
    "-gencode arch=compute_100,code=sm_100",
    "-gencode arch=compute_120,code=[sm_120,compute_120]",
]

def cuda_library(name, srcs, hdrs = [], deps = [], **kwargs):
    """A cc_library of .cu files.

    nvcc sees the files' own headers (hdrs), the standard library's and CUDA's;
    whoever includes hdrs is compiled as ever.
    """
    objects = []
    for source in srcs:
        # Named as what --force_pic asks of a ready object.
        object = source[:-len(".cu")] + ".cu.pic.o"
        objects.append(object)
        native.genrule(
            name = object + "_nvcc",
            srcs = [source] + hdrs,
            outs = [object],
            cmd = " ".join([
                CUDA_HOME + "/bin/nvcc -std=c++20 -O3 -lineinfo",
                "-Werror=all-warnings",
                "-Xcompiler=-fPIC,-fno-omit-frame-pointer,-Wall,-Wextra",
            ] + _GENCODE + [
                "-I. -c $(location %s) -o $@" % source,
            ]),
            message = "Compiling " + source,
            target_compatible_with = ONLY_WITH_CUDA,
            # A new nvcc compiles anew.
            tools = ["@local_cuda//:nvcc_version.txt"],
        )
    cc_library(
        name = name,
        srcs = objects,
        hdrs = hdrs,
        linkstatic = True,
        target_compatible_with = ONLY_WITH_CUDA,
        deps = deps + ["@local_cuda//:cudart"],
        **kwargs
    )
