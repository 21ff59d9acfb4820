"""Fuzz tests that every compiler runs, and libFuzzer."""

load(":cc.bzl", "cc_test")

def fuzz_test(name, deps, srcs = [], precompiled = "common", corpus = [], tags = [], runs = 20000, brief = False, whole = False, **kwargs):
    """Runs a libFuzzer entry on its corpus and on seeded mutations of it.

    An ordinary test (`runs` mutations, under the sanitizers too); with
    --config=libfuzzer it is libFuzzer's, which .ci/run gives half a minute for
    each target tagged "fuzz", and 15 seconds for those tagged "fuzz_brief" as
    well.

    Args:
      srcs: the file with LLVMFuzzerTestOneInput; none where it is in a
        cc_library of `deps` that is alwayslink, for a unit test to have as well.
      deps: what that file includes, or that library.
      precompiled: as cc_library has it.
      corpus: labels of files with good inputs, and of past failures.
      runs: fewer where an input takes long.
      brief: tags it "fuzz_brief".
      whole: it has most of the daemon in it, which .ci/run does not compile once
        more for libFuzzer: no tag "fuzz", so that its mutations run under ASan.
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
            "//tests/fakes:libfuzzer": ["//tests/fakes:libfuzzer_arguments"],
            "//conditions:default": ["//tests/fakes:fuzz_driver"],
        }),
        linkopts = select({
            "//tests/fakes:libfuzzer": ["-fsanitize=fuzzer"],
            "//conditions:default": [],
        }),
        env = {"ROUNDHOUSE_FUZZ_USUAL_RUNS": str(runs)},
        tags = tags + ([] if whole else ["fuzz"]) + (["fuzz_brief"] if brief else []),
        **kwargs
    )
