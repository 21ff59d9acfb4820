"""Fuzz tests that every compiler runs, and libFuzzer."""

def fuzz_test(name, deps, corpus = [], tags = [], **kwargs):
    """Runs a libFuzzer entry on its corpus and on seeded mutations of it.

    An ordinary test (20,000 mutations, under the sanitizers too); with
    --config=libfuzzer it is libFuzzer's, which .ci/run gives a minute for each
    target tagged "fuzz".

    Args:
      deps: a cc_library with LLVMFuzzerTestOneInput, alwayslink = True.
      corpus: labels of files with good inputs, and of past failures.
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
        tags = tags + ["fuzz"],
        **kwargs
    )
