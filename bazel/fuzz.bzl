"""Fuzz tests that every compiler runs, and libFuzzer."""

def fuzz_test(name, deps, corpus = [], tags = [], runs = 20000, brief = False, **kwargs):
    """Runs a libFuzzer entry on its corpus and on seeded mutations of it.

    An ordinary test (`runs` mutations, under the sanitizers too); with
    --config=libfuzzer it is libFuzzer's, which .ci/run gives a minute for each
    target tagged "fuzz", and 15 seconds for those tagged "fuzz_brief" as well.

    Args:
      deps: a cc_library with LLVMFuzzerTestOneInput, alwayslink = True.
      corpus: labels of files with good inputs, and of past failures.
      runs: fewer where an input takes long.
      brief: tags it "fuzz_brief".
    """
    args = []
    for label in corpus:
        args.append("$(rootpaths %s)" % label)
    native.cc_test(
        name = name,
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
        tags = tags + ["fuzz"] + (["fuzz_brief"] if brief else []),
        **kwargs
    )
