"""cc_library, cc_binary and cc_test that begin with a precompiled header."""

def _with_header(name, kwargs):
    """`kwargs` of a native rule whose files begin with //bazel/precompiled:name."""
    if not kwargs.get("srcs"):
        return kwargs
    folder = "//bazel/precompiled"
    uses = dict(kwargs)
    uses["copts"] = kwargs.get("copts", []) + select({
        folder + ":off": [],
        "//conditions:default": ["-include", "bazel/precompiled/%s.pch.h" % name],
    })
    uses["deps"] = kwargs.get("deps", []) + select({
        folder + ":off": [],
        "//conditions:default": ["%s:%s" % (folder, name)],
    })
    return uses

def cc_library(name, precompiled = "common", **kwargs):
    native.cc_library(name = name, **_with_header(precompiled, kwargs))

def cc_binary(name, precompiled = "common", **kwargs):
    native.cc_binary(name = name, **_with_header(precompiled, kwargs))

def cc_test(name, precompiled = "test", **kwargs):
    native.cc_test(name = name, **_with_header(precompiled, kwargs))
