"""cc_grpc_library: protoc + grpc_cpp_plugin over one or more .proto files."""

load(":cc.bzl", "cc_library")

def cc_grpc_library(name, srcs, imports = [], deps = [], visibility = None, testonly = False, services = True):
    """`imports`: .proto files of `deps` that srcs import. `services`: they have any."""
    endings = [".pb.h", ".pb.cc"]
    plugin = []
    if services:
        endings += [".grpc.pb.h", ".grpc.pb.cc", "_mock.grpc.pb.h"]
        plugin = [
            "--plugin=protoc-gen-grpc=$(execpath @com_github_grpc_grpc//:bin/grpc_cpp_plugin)",
            "--grpc_out=generate_mock_code=true:$(GENDIR)",
        ]
    outs = [s[:-len(".proto")] + ending for s in srcs for ending in endings]
    native.genrule(
        name = name + "_gen",
        srcs = srcs + imports,
        outs = outs,
        cmd = " ".join([
            "$(execpath @com_google_protobuf//:bin/protoc)",
            "-I. -I/usr/include",
            "--cpp_out=$(GENDIR)",
        ] + plugin + ["$(execpath %s)" % s for s in srcs]),
        tools = [
            "@com_google_protobuf//:bin/protoc",
            "@com_github_grpc_grpc//:bin/grpc_cpp_plugin",
        ],
        message = "Generating C++ for " + ", ".join(srcs),
    )
    cc_library(
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
