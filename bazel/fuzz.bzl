"""Fuzz tests that every compiler runs, and libFuzzer."""

load(":cc.bzl", "cc_test")

def fuzz_test(name, deps, srcs = [], precompiled = "common", corpus = [], tags = [], runs = 20000, brief = False, **kwargs):
    """Runs a libFuzzer entry on its corpus and on seeded mutations of it.

    An ordinary test of `runs` mutations; with --config=asan it is libFuzzer's,
    which .ci/run gives half a minute for each target, and 15 seconds for those
    tagged "fuzz_brief".

    Args:
      srcs: the file with LLVMFuzzerTestOneInput; none where it is in a
        cc_library of `deps` that is alwayslink, for a unit test to have as well.
      deps: what that file includes, or that library.
      precompiled: as cc_library has it.
      corpus: labels of files with good inputs, and of past failures.
      runs: fewer where an input takes long.
      brief: tags it "fuzz_brief".
    """
    args = []
    for label in corpus:
        args.append("$(rootpaths %s)" % label)
    cc_test(
        name = name,
        srcs = srcs,
        precompiled = precompiled,
        args = args,
        data = corpus,
        deps = deps + select({
            "//bazel:clang": ["//tests/fakes:libfuzzer_arguments"],
            "//conditions:default": ["//tests/fakes:fuzz_driver"],
        }),
        linkopts = select({
            "//bazel:clang": ["-fsanitize=fuzzer"],
            "//conditions:default": [],
        }),
        env = {"ROUNDHOUSE_FUZZ_USUAL_RUNS": str(runs)},
        tags = tags + ["fuzz"] + (["fuzz_brief"] if brief else []),
        **kwargs
    )
