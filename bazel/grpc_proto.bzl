"""cc_grpc_library: protoc + grpc_cpp_plugin over one or more .proto files."""

def cc_grpc_library(name, srcs, imports = [], deps = [], visibility = None, testonly = False):
    """`imports`: .proto files of `deps` that srcs import."""
    outs = []
    for s in srcs:
        base = s[:-len(".proto")]
        outs += [base + e for e in [".pb.h", ".pb.cc", ".grpc.pb.h", ".grpc.pb.cc", "_mock.grpc.pb.h"]]
    native.genrule(
        name = name + "_gen",
        srcs = srcs + imports,
        outs = outs,
        cmd = " ".join([
            "$(execpath @com_google_protobuf//:bin/protoc)",
            "-I. -I/usr/include",
            "--plugin=protoc-gen-grpc=$(execpath @com_github_grpc_grpc//:bin/grpc_cpp_plugin)",
            "--cpp_out=$(GENDIR)",
            "--grpc_out=generate_mock_code=true:$(GENDIR)",
        ] + ["$(execpath %s)" % s for s in srcs]),
        tools = [
            "@com_google_protobuf//:bin/protoc",
            "@com_github_grpc_grpc//:bin/grpc_cpp_plugin",
        ],
        message = "Generating C++ for " + ", ".join(srcs),
    )
    native.cc_library(
        name = name,
        srcs = [o for o in outs if o.endswith(".cc")],
        hdrs = [o for o in outs if o.endswith(".h")],
        visibility = visibility,
        testonly = testonly,
        deps = deps + [
            "@com_github_grpc_grpc//:grpc++",
            "@com_google_protobuf//:protobuf",
        ],
    )
