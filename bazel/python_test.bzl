"""Tests of our Python files, in the environment that install-deps makes."""

def python_test(name, src, data = [], tags = [], **kwargs):
    """A unittest file run by the dataset helper's own Python.

    A missing environment fails the test. The test finds its data beside it.
    """
    native.sh_test(
        name = name,
        srcs = ["//deploy:run-python"],
        args = [
            "$(rootpath //tests:python_test.py)",
            "$(rootpath %s)" % src,
        ],
        data = data + [src, "//deploy:common.sh", "//tests:python_test.py"],
        tags = tags + ["python"],  # the sanitizers have nothing to do there
        **kwargs
    )
