"""Fuzz tests that every compiler runs."""

def fuzz_test(name, deps, corpus = [], tags = [], **kwargs):
    """Runs a libFuzzer entry on its corpus and on seeded mutations of it.

    An ordinary test (20,000 mutations, under the sanitizers too); .ci/run
    runs all targets tagged "fuzz" for longer.

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
        deps = deps + ["//tests/fakes:fuzz_driver"],
        tags = tags + ["fuzz"],
        **kwargs
    )
