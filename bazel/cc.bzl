"""cc_library, cc_binary and cc_test that begin with a precompiled header."""

def _with_header(name, kwargs):
    """`kwargs` of a native rule whose files begin with //bazel/precompiled:name."""
    if not kwargs.get("srcs"):
        return kwargs

    # gcc 12 breaks down where file and header are optimised differently. (What
    # a select() says is not known here.)
    copts = kwargs.get("copts", [])
    if type(copts) == "list" and [flag for flag in copts if flag.startswith("-O")]:
        return kwargs
    folder = "//bazel/precompiled"

    # By its path: clang looks for the .gch file nowhere else.
    include = ["-include", "$(BINDIR)/bazel/precompiled/%s.pch.h" % name]
    uses = dict(kwargs)
    uses["copts"] = copts + select({
        folder + ":off": [],
        "//bazel:clang": include,
        # -fpch-deps: what changes inside the header is an input of its users.
        "//conditions:default": ["-fpch-deps"] + include,
    })
    uses["deps"] = kwargs.get("deps", []) + select({
        folder + ":off": [],
        "//conditions:default": ["%s:%s" % (folder, name)],
    })
    return uses

# Packages whose files parse more of gRPC than of anything else. .bazelrc has
# them all at -O1, as the header is: gcc 12 breaks down where the two differ.
_GRPC_PACKAGES = [
    "client",
    "client/accounts",
    "client/commands",
    "client/tables",
    "client/testing",
    "server/api",
    "server/api/disk",
    "server/api/pulls",
]

def _default(otherwise):
    return "grpc" if native.package_name() in _GRPC_PACKAGES else otherwise

def cc_library(name, precompiled = None, **kwargs):
    native.cc_library(
        name = name,
        **_with_header(precompiled or _default("common"), kwargs)
    )

def cc_binary(name, precompiled = None, **kwargs):
    native.cc_binary(
        name = name,
        **_with_header(precompiled or _default("common"), kwargs)
    )

def cc_test(name, precompiled = None, **kwargs):
    native.cc_test(
        name = name,
        **_with_header(precompiled or _default("test"), kwargs)
    )
